// The network: backbone f and heads g and h in plain typed arrays, BatchNorm folded into the weights.

const EPSILON = 1e-5; // of BatchNorm

// Products of all rows of a (m, k) with all rows of b (n, k): (n, m). Two by four at a time, so that
// each number that is loaded is used several times.
function products(a, b, m, n, k) {
  const result = new Float64Array(n * m);
  for (let j = 0; j < n; j += 2) {
    const b0 = j * k;
    const b1 = Math.min(j + 1, n - 1) * k;
    for (let i = 0; i < m; i += 4) {
      const a0 = i * k;
      const a1 = Math.min(i + 1, m - 1) * k;
      const a2 = Math.min(i + 2, m - 1) * k;
      const a3 = Math.min(i + 3, m - 1) * k;
      let s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
      for (let t = 0; t < k; t++) {
        const x = b[b0 + t];
        const y = b[b1 + t];
        const w0 = a[a0 + t];
        const w1 = a[a1 + t];
        const w2 = a[a2 + t];
        const w3 = a[a3 + t];
        s00 += w0 * x;
        s01 += w1 * x;
        s02 += w2 * x;
        s03 += w3 * x;
        s10 += w0 * y;
        s11 += w1 * y;
        s12 += w2 * y;
        s13 += w3 * y;
      }
      const rest = Math.min(4, m - i);
      const first = [s00, s01, s02, s03];
      const second = [s10, s11, s12, s13];
      for (let r = 0; r < rest; r++) {
        result[j * m + i + r] = first[r];
        if (j + 1 < n) result[(j + 1) * m + i + r] = second[r];
      }
    }
  }
  return result;
}

// Weights (out, in) with the BatchNorm that follows them, as {weights, bias, out, inputs}.
function foldedLayer(tensors, layer, norm) {
  const weights = Float64Array.from(toFloats(tensors[`${layer}.weight`]));
  const out = tensors[`${layer}.weight`].shape[0];
  const inputs = weights.length / out;
  const bias = new Float64Array(out);
  if (norm) {
    const part = (name) => tensors[`${norm}.${name}`] && toFloats(tensors[`${norm}.${name}`]);
    const [gain, shift] = [part("weight"), part("bias")];
    const [centre, variance] = [part("running_mean"), part("running_var")];
    for (let o = 0; o < out; o++) {
      const scale = (gain ? gain[o] : 1) / Math.sqrt(variance[o] + EPSILON);
      for (let i = 0; i < inputs; i++) weights[o * inputs + i] *= scale;
      bias[o] = (shift ? shift[o] : 0) - centre[o] * scale;
    }
  }
  return { weights, bias, out, inputs };
}

// {blocks, projector, predictor} from the tensors of a file and the shape of the network:
// {depth, ceil_pooling, has_heads, has_predictor}.
function buildNetwork(tensors, shape) {
  const layer = (name, norm) => foldedLayer(tensors, name, norm);
  const blocks = [];
  for (let i = 0; i < shape.depth; i++) blocks.push(layer(`backbone.${4 * i}`, `backbone.${4 * i + 1}`));
  const head = (name, last) => [layer(`${name}.0`, `${name}.1`), layer(`${name}.3`, last)];
  return {
    blocks,
    ceil: shape.ceil_pooling,
    projector: shape.has_heads ? head("projector", "projector.4") : null,
    predictor: shape.has_predictor ? head("predictor", null) : null,
  };
}

// The 3 x 3 neighbourhoods of every pixel of maps (batch, channels, side, side), one to a row.
function neighbourhoods(maps, batch, channels, side) {
  const rows = new Float64Array(batch * side * side * channels * 9);
  let at = 0;
  for (let n = 0; n < batch; n++) {
    for (let y = 0; y < side; y++) {
      for (let x = 0; x < side; x++) {
        for (let c = 0; c < channels; c++) {
          const plane = (n * channels + c) * side * side;
          for (let dy = -1; dy <= 1; dy++) {
            for (let dx = -1; dx <= 1; dx++, at++) {
              const inside = y + dy >= 0 && y + dy < side && x + dx >= 0 && x + dx < side;
              if (inside) rows[at] = maps[plane + (y + dy) * side + x + dx];
            }
          }
        }
      }
    }
  }
  return rows;
}

// Convolution, ReLU and pooling of maps (batch, inputs, side, side); returns [maps, their side].
function convolutionBlock(maps, block, batch, side, ceil) {
  const { weights, bias, out, inputs } = block;
  const rows = neighbourhoods(maps, batch, inputs / 9, side);
  const sums = products(weights, rows, out, batch * side * side, inputs);
  const half = ceil ? Math.ceil(side / 2) : Math.floor(side / 2);
  const pooled = new Float64Array(batch * out * half * half);
  for (let n = 0; n < batch; n++) {
    for (let y = 0; y < 2 * half && y < side; y++) {
      for (let x = 0; x < 2 * half && x < side; x++) {
        const from = (n * side * side + y * side + x) * out;
        const to = n * out * half * half + (y >> 1) * half + (x >> 1);
        for (let o = 0; o < out; o++) {
          const value = sums[from + o] + bias[o]; // ReLU: the pools start at zero
          if (value > pooled[to + o * half * half]) pooled[to + o * half * half] = value;
        }
      }
    }
  }
  return [pooled, half];
}

function backbone(network, inputs, batch, side) {
  let maps = inputs;
  for (const block of network.blocks) {
    [maps, side] = convolutionBlock(maps, block, batch, side, network.ceil);
  }
  return maps; // (batch, width)
}

function applyHead(layers, x, batch) {
  layers.forEach((layer, place) => {
    x = products(layer.weights, x, layer.out, batch, layer.inputs);
    const isLast = place === layers.length - 1;
    for (let i = 0; i < x.length; i++) {
      const value = x[i] + layer.bias[i % layer.out];
      x[i] = isLast ? value : Math.max(0, value);
    }
  });
  return x;
}

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

function unit(x) {
  const length = Math.max(1e-12, Math.sqrt(dot(x, x)));
  return x.map((value) => value / length);
}

// The mean of `batch` vectors, or of their directions.
function meanOf(x, batch, directions) {
  const width = x.length / batch;
  const sum = new Float64Array(width);
  for (let n = 0; n < batch; n++) {
    const row = x.subarray(n * width, (n + 1) * width);
    (directions ? unit(row) : row).forEach((value, i) => (sum[i] += value));
  }
  return directions ? unit(sum) : sum.map((value) => value / batch);
}

// Embed bytes (source_size, source_size, channels): {features, support, query, seen}, where `seen`
// are the pixels (size, size, channels) of the plain view.
function embed(model, bytes) {
  const { image, views, network } = model;
  const planes = toPlanes(bytes, image.source_size, image.channels);
  const plain = plainView(planes, image);
  const all = [plain, ...views.map((view) => distortedView(planes, image, view))];
  const inputs = new Float64Array(all.length * plain.length);
  all.forEach((view, place) => inputs.set(normalised(view, image), place * plain.length));
  const features = backbone(network, inputs, all.length, image.size);
  const g = network.projector ? applyHead(network.projector, features, all.length) : features;
  const h = network.predictor ? applyHead(network.predictor, g, all.length) : g;
  return {
    features: meanOf(features, all.length, false),
    support: meanOf(g, all.length, true),
    query: meanOf(h, all.length, true),
    seen: toBytes(plain, image.size, image.channels),
  };
}
