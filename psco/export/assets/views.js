// Views at test time: the same few distortions of every picture, drawn once when the page was made.
//
// A view is {warp: {side, fill, motions}, stroke: {amount, ink}}. A motion maps points of the view
// to points of the picture: {linear: 2 x 3 numbers} or {bend: displacements on a grid, grid}.

const OVERSAMPLING = 2;
const NEAR = 1.5; // ratio of source to view up to which one sample per pixel is enough

function cubicWeights(t) {
  const a = -0.75; // PyTorch's cubic
  const outer = (x) => ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  const inner = (x) => ((a + 2) * x - (a + 3)) * x * x + 1;
  return [outer(t + 1), inner(t), inner(1 - t), outer(2 - t)];
}

// The value at (x, y) in [-1, 1]² of a grid of numbers from edge to edge.
function bicubic(values, start, grid, x, y) {
  const column = ((x + 1) / 2) * (grid - 1);
  const row = ((y + 1) / 2) * (grid - 1);
  const bound = (place) => Math.min(grid - 1, Math.max(0, place));
  const across = cubicWeights(column - Math.floor(column));
  const down = cubicWeights(row - Math.floor(row));
  let sum = 0;
  for (let i = 0; i < 4; i++) {
    const line = start + bound(Math.floor(row) - 1 + i) * grid;
    for (let j = 0; j < 4; j++) {
      sum += down[i] * across[j] * values[line + bound(Math.floor(column) - 1 + j)];
    }
  }
  return sum;
}

function move(motion, x, y) {
  if (motion.linear) {
    const [a, b, c, d, e, f] = motion.linear;
    return [a * x + b * y + c, d * x + e * y + f];
  }
  const { bend, grid } = motion;
  return [x + bicubic(bend, 0, grid, x, y), y + bicubic(bend, grid * grid, grid, x, y)];
}

// The point of the picture at each of the samples, `perSide` x `perSide` in every pixel: x and y.
function samplePoints(motions, size, perSide) {
  const points = [];
  for (let sy = 0; sy < size * perSide; sy++) {
    for (let sx = 0; sx < size * perSide; sx++) {
      let x = ((sx + 0.5) * 2) / (size * perSide) - 1;
      let y = ((sy + 0.5) * 2) / (size * perSide) - 1;
      for (let m = motions.length - 1; m >= 0; m--) [x, y] = move(motions[m], x, y);
      points.push(x, y);
    }
  }
  return Float64Array.from(points);
}

function borderMedian(planes, start, side) {
  const border = [];
  for (let i = 0; i < side; i++) {
    for (const place of [i, (side - 1) * side + i, i * side, i * side + side - 1]) {
      border.push(planes[start + place]);
    }
  }
  border.sort((a, b) => a - b);
  return border[(border.length - 1) >> 1];
}

function mean(numbers) {
  return numbers.reduce((a, b) => a + b, 0) / numbers.length;
}

function fillColour(fill, planes, channel, side) {
  const plane = planes.subarray(channel * side * side, (channel + 1) * side * side);
  if (fill === "mean") return mean(plane);
  if (fill === "auto") return borderMedian(planes, channel * side * side, side);
  return fill[Math.min(channel, fill.length - 1)] / 255;
}

function sampleBilinear(plane, side, x, y, colour) {
  const column = ((x + 1) * side - 1) / 2;
  const row = ((y + 1) * side - 1) / 2;
  const left = Math.floor(column);
  const top = Math.floor(row);
  const value = (i, j) =>
    i < 0 || j < 0 || i >= side || j >= side ? 0 : plane[i * side + j] - colour;
  const u = column - left;
  const v = row - top;
  const sum =
    (1 - v) * ((1 - u) * value(top, left) + u * value(top, left + 1)) +
    v * ((1 - u) * value(top + 1, left) + u * value(top + 1, left + 1));
  return Math.min(1, Math.max(0, sum + colour));
}

function shrunk(planes, side, channels, target) {
  if (side < NEAR * target) return [planes, side];
  const small = resizePlanes(planes, side, channels, target);
  return [small.map((value) => Math.round(255 * value) / 255), target];
}

function warp(planes, side, channels, size, view) {
  const { motions, fill } = view.warp;
  const [source, from] = shrunk(planes, side, channels, view.warp.side);
  const perSide = from > NEAR * size ? OVERSAMPLING : 1;
  // The points are those of every picture, so they are computed once.
  view.points ??= samplePoints(motions, size, perSide);
  const result = new Float64Array(channels * size * size);
  for (let c = 0; c < channels; c++) {
    const plane = source.subarray(c * from * from, (c + 1) * from * from);
    const colour = fillColour(fill, source, c, from);
    for (let i = 0, sample = 0; i < size * perSide; i++) {
      for (let j = 0; j < size * perSide; j++, sample += 2) {
        const pixel = Math.floor(i / perSide) * size + Math.floor(j / perSide);
        const x = view.points[sample];
        const y = view.points[sample + 1];
        result[c * size * size + pixel] +=
          sampleBilinear(plane, from, x, y, colour) / (perSide * perSide);
      }
    }
  }
  return result;
}

// The largest of each pixel and its eight neighbours.
function brightestNeighbour(plane, size) {
  const result = new Float64Array(plane.length).fill(-Infinity);
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      for (let dy = Math.max(0, y - 1); dy <= Math.min(size - 1, y + 1); dy++) {
        for (let dx = Math.max(0, x - 1); dx <= Math.min(size - 1, x + 1); dx++) {
          if (plane[dy * size + dx] > result[y * size + x]) result[y * size + x] = plane[dy * size + dx];
        }
      }
    }
  }
  return result;
}

// Make the lines of a drawing thicker (amount > 0) or thinner, in pixels.
function growLines(planes, channels, size, stroke) {
  const area = size * size;
  const borders = Array.from({ length: channels }, (_, c) => borderMedian(planes, c * area, size));
  const isDark = stroke.ink === "dark" || (stroke.ink === "auto" && mean(planes) <= mean(borders));
  const amount = isDark ? stroke.amount : -stroke.amount;
  const sign = amount > 0 ? -1 : 1;
  const result = new Float64Array(planes.length);
  for (let c = 0; c < channels; c++) {
    let grown = planes.slice(c * area, (c + 1) * area).map((value) => value * sign);
    for (let left = Math.abs(amount); left > 0; left--) {
      const bright = brightestNeighbour(grown, size);
      grown = grown.map((value, i) => value + (bright[i] - value) * Math.min(1, left));
    }
    result.set(grown.map((value) => value * sign), c * area);
  }
  return result;
}

function distortedView(planes, image, view) {
  const { size, source_size: side, channels } = image;
  const moved = view.warp
    ? warp(planes, side, channels, size, view)
    : resizePlanes(planes, side, channels, size);
  return view.stroke ? growLines(moved, channels, size, view.stroke) : moved;
}
