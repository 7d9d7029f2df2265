// Pixels: from a picture of any size to the small square that the network takes, as in Python.
//
// fitSquare is Pillow's ImageOps.fit with the bicubic filter, in its fixed-point arithmetic, so that
// the same bytes come out. resizePlanes is psco.ops.resample, in floating point.

const BITS = 22; // of Pillow's fixed-point weights
const RADIUS = { bilinear: 1, bicubic: 2 };

function filterValue(x, filter) {
  x = Math.abs(x);
  if (x >= RADIUS[filter]) return 0;
  if (filter === "bilinear") return 1 - x;
  return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : ((-0.5 * x + 2.5) * x - 4) * x + 2;
}

// For every pixel of the result: the first pixel under the filter, and the weights from there on.
function filterRows(side, from, to, target, filter) {
  const scale = (to - from) / target;
  const stretch = Math.max(1, scale);
  const support = RADIUS[filter] * stretch;
  return Array.from({ length: target }, (_, place) => {
    const centre = from + (place + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - support + 0.5));
    const last = Math.min(side, Math.trunc(centre + support + 0.5));
    const weights = [];
    for (let x = first; x < last; x++) weights.push(filterValue((x - centre + 0.5) / stretch, filter));
    const sum = weights.reduce((a, b) => a + b, 0);
    return { first, weights: weights.map((weight) => weight / sum) };
  });
}

// Resample lines of interleaved bytes along one axis; `step` apart along it, `lines` across it.
function resampleBytes(source, rows, step, lines, across, channels, result, put) {
  for (const [place, { first, weights }] of rows.entries()) {
    const fixed = weights.map((weight) => Math.trunc(weight * (1 << BITS) + (weight < 0 ? -0.5 : 0.5)));
    for (let line = 0; line < lines; line++) {
      for (let channel = 0; channel < channels; channel++) {
        let sum = 1 << (BITS - 1);
        let at = line * across + first * step + channel;
        for (let tap = 0; tap < fixed.length; tap++, at += step) sum += source[at] * fixed[tap];
        result[put(place, line) + channel] = Math.min(255, Math.max(0, Math.floor(sum / (1 << BITS))));
      }
    }
  }
}

function resizeBytes(source, width, height, channels, box, size) {
  const [left, top, right, bottom] = box;
  const columns = filterRows(width, left, right, size, "bicubic");
  const rows = filterRows(height, top, bottom, size, "bicubic");
  const between = new Uint8Array(size * height * channels);
  const putColumn = (place, line) => (line * size + place) * channels;
  resampleBytes(source, columns, channels, height, width * channels, channels, between, putColumn);
  const result = new Uint8Array(size * size * channels);
  const putRow = (place, line) => (place * size + line) * channels;
  resampleBytes(between, rows, size * channels, size, channels, channels, result, putRow);
  return result;
}

const byte255 = (product) => ((product >> 8) + product) >> 8;

// Colours count by their opacity when pixels are mixed, as in Pillow.
function premultiplied(rgba) {
  const result = rgba.slice();
  for (let i = 0; i < result.length; i += 4) {
    for (let c = 0; c < 3; c++) result[i + c] = byte255(result[i + c] * result[i + 3] + 128);
  }
  return result;
}

function unmultiplied(pixels) {
  const result = pixels.slice();
  for (let i = 0; i < result.length; i += 4) {
    const alpha = result[i + 3];
    if (alpha === 0 || alpha === 255) continue;
    for (let c = 0; c < 3; c++) result[i + c] = Math.min(255, Math.trunc((255 * result[i + c]) / alpha));
  }
  return result;
}

// RGBA as RGB over white.
function onWhite(rgba) {
  const count = rgba.length / 4;
  const rgb = new Uint8Array(count * 3);
  for (let i = 0; i < count; i++) {
    const weight = rgba[4 * i + 3] * 128;
    for (let c = 0; c < 3; c++) {
      const sum = rgba[4 * i + c] * weight + 255 * (255 * 128 - weight);
      rgb[3 * i + c] = byte255(sum + (128 << 7)) >> 7;
    }
  }
  return rgb;
}

function toGrey(rgb) {
  const grey = new Uint8Array(rgb.length / 3);
  for (let i = 0; i < grey.length; i++) {
    const sum = rgb[3 * i] * 19595 + rgb[3 * i + 1] * 38470 + rgb[3 * i + 2] * 7471 + 32768;
    grey[i] = sum >> 16;
  }
  return grey;
}

// The centre square of a picture {width, height, data: RGBA} as (size, size, channels) bytes.
function fitSquare(picture, size, channels) {
  const { width, height, data } = picture;
  const side = Math.min(width, height);
  const left = (width - side) / 2;
  const top = (height - side) / 2;
  let pixels = new Uint8Array(data.buffer, data.byteOffset, data.length);
  if (width !== size || height !== size) {
    const box = [left, top, left + side, top + side];
    pixels = unmultiplied(resizeBytes(premultiplied(pixels), width, height, 4, box, size));
  }
  const rgb = onWhite(pixels);
  return channels === 1 ? toGrey(rgb) : rgb;
}

// Bytes (side, side, channels) as planes of floats in [0, 1], one after the other.
function toPlanes(bytes, side, channels) {
  const planes = new Float64Array(bytes.length);
  const area = side * side;
  for (let i = 0; i < area; i++) {
    for (let c = 0; c < channels; c++) planes[c * area + i] = bytes[i * channels + c] / 255;
  }
  return planes;
}

// Resize square planes with the antialiased bilinear filter, columns first.
function resizePlanes(planes, side, channels, size) {
  if (side === size) return planes.slice();
  const taps = filterRows(side, 0, side, size, "bilinear");
  const result = new Float64Array(channels * size * size);
  const between = new Float64Array(side * size);
  const clamp = (value) => Math.min(1, Math.max(0, value));
  for (let c = 0; c < channels; c++) {
    for (let y = 0; y < side; y++) {
      taps.forEach(({ first, weights }, x) => {
        let sum = 0;
        weights.forEach((weight, k) => (sum += weight * planes[(c * side + y) * side + first + k]));
        between[y * size + x] = clamp(sum);
      });
    }
    taps.forEach(({ first, weights }, y) => {
      for (let x = 0; x < size; x++) {
        let sum = 0;
        weights.forEach((weight, k) => (sum += weight * between[(first + k) * size + x]));
        result[(c * size + y) * size + x] = clamp(sum);
      }
    });
  }
  return result;
}

function toBytes(planes, side, channels) {
  const bytes = new Uint8Array(planes.length);
  const area = side * side;
  for (let i = 0; i < area; i++) {
    for (let c = 0; c < channels; c++) {
      bytes[i * channels + c] = Math.round(255 * Math.min(1, Math.max(0, planes[c * area + i])));
    }
  }
  return bytes;
}

// What the network sees of a picture: resized, or the centre cut out, in [0, 1].
function plainView(planes, image) {
  const { size, source_size: side, channels } = image;
  if (!image.test_crop) return resizePlanes(planes, side, channels, size);
  const margin = Math.floor((side - size) / 2);
  const result = new Float64Array(channels * size * size);
  for (let c = 0; c < channels; c++) {
    for (let y = 0; y < size; y++) {
      const start = (c * side + y + margin) * side + margin;
      result.set(planes.subarray(start, start + size), (c * size + y) * size);
    }
  }
  return result;
}

function normalised(planes, image) {
  const area = planes.length / image.channels;
  return planes.map((value, i) => {
    const channel = Math.floor(i / area);
    return (value - image.mean[channel]) / image.std[channel];
  });
}
