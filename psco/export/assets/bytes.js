// Bytes: base64, 16-bit floats, the safetensors format and SHA-256. Knows nothing of pictures.

const WIDTHS = { F64: 8, I64: 8, F32: 4, F16: 2, U8: 1 };

function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

function toBase64(bytes) {
  let binary = "";
  for (let i = 0; i < bytes.length; i += 8192) {
    binary += String.fromCharCode(...bytes.subarray(i, i + 8192));
  }
  return btoa(binary);
}

function bytesOf(array) {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

// A table of all 65,536 halves is faster than arithmetic for a million of them.
const HALVES = (() => {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    let value = 2 ** (exponent - 15) * (1 + fraction / 1024);
    if (exponent === 0) value = 2 ** -14 * (fraction / 1024);
    if (exponent === 31) value = fraction ? NaN : Infinity;
    table[bits] = bits & 0x8000 ? -value : value;
  }
  return table;
})();

// The numbers of a tensor {dtype, shape, data} as 32-bit floats.
function toFloats(tensor) {
  const copy = tensor.data.slice().buffer; // aligned, whatever the place in the file
  if (tensor.dtype === "F32") return new Float32Array(copy);
  if (tensor.dtype !== "F16") throw new Error(`a tensor of ${tensor.dtype} instead of numbers`);
  const halves = new Uint16Array(copy);
  const numbers = new Float32Array(halves.length);
  for (let i = 0; i < halves.length; i++) numbers[i] = HALVES[halves[i]];
  return numbers;
}

function floatTensor(numbers, shape) {
  return { dtype: "F32", shape, data: bytesOf(Float32Array.from(numbers)) };
}

// Parse a safetensors file into {metadata, tensors}; throws on anything else.
function parseSafetensors(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = view.getUint32(0, true);
  if (view.getUint32(4, true) || 8 + length > bytes.length) throw new Error("no header");
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const { __metadata__: metadata = {}, ...entries } = header;
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: [begin, end] }] of Object.entries(entries)) {
    const data = bytes.subarray(8 + length + begin, 8 + length + end);
    const count = shape.reduce((product, side) => product * side, 1);
    if (data.length !== count * WIDTHS[dtype]) throw new Error(`${name} is cut short`);
    tensors[name] = { dtype, shape, data };
  }
  return { metadata, tensors };
}

// Write a safetensors file; wide types come first, which keeps every tensor aligned.
function writeSafetensors(tensors, metadata) {
  const order = Object.entries(tensors).sort(
    ([a, x], [b, y]) => WIDTHS[y.dtype] - WIDTHS[x.dtype] || (a < b ? -1 : 1),
  );
  const header = { __metadata__: metadata };
  let end = 0;
  for (const [name, { dtype, shape, data }] of order) {
    header[name] = { dtype, shape, data_offsets: [end, end + data.length] };
    end += data.length;
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const padded = new Uint8Array(Math.ceil(text.length / 8) * 8).fill(32);
  padded.set(text);
  const file = new Uint8Array(8 + padded.length + end);
  new DataView(file.buffer).setUint32(0, padded.length, true);
  file.set(padded, 8);
  end = 8 + padded.length;
  for (const [, { data }] of order) {
    file.set(data, end);
    end += data.length;
  }
  return file;
}

const ROUND_CONSTANTS = (() => {
  const fractions = (power) => (n) => ((n ** power % 1) * 2 ** 32) | 0;
  const primes = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p)) primes.push(n);
  return { start: primes.slice(0, 8).map(fractions(1 / 2)), round: primes.map(fractions(1 / 3)) };
})();

// Browsers offer SHA-256 to pages from the network only, so it is written out here.
function sha256(bytes) {
  const blocks = Math.ceil((bytes.length + 9) / 64);
  const message = new Uint8Array(blocks * 64);
  message.set(bytes);
  message[bytes.length] = 0x80;
  const view = new DataView(message.buffer);
  view.setUint32(message.length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(message.length - 4, (bytes.length * 8) >>> 0);
  const state = Int32Array.from(ROUND_CONSTANTS.start);
  const w = new Int32Array(64);
  const turn = (x, n) => (x >>> n) | (x << (32 - n));
  for (let block = 0; block < blocks; block++) {
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(block * 64 + i * 4);
    for (let i = 16; i < 64; i++) {
      const low = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ (w[i - 15] >>> 3);
      const high = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ (w[i - 2] >>> 10);
      w[i] = w[i - 16] + low + w[i - 7] + high;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const high = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
      const t = (h + high + ((e & f) ^ (~e & g)) + ROUND_CONSTANTS.round[i] + w[i]) | 0;
      const low = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
      const next = (t + low + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + t) | 0;
      d = c;
      c = b;
      b = a;
      a = next;
    }
    [a, b, c, d, e, f, g, h].forEach((value, i) => (state[i] += value));
  }
  return Array.from(state, (value) => (value >>> 0).toString(16).padStart(8, "0")).join("");
}
