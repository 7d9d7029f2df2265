// Files: classes as JSON, and whole classifiers as .psco, which Python opens too.
//
// A .psco file is described in psco/classifier/storage.py. The page itself was made from one.

const FORMAT = "psco-classes";
const KIND = "psco-classifier";
const BLANK = "0".repeat(64);
const ANOTHER =
  "was made with another encoder, so this page cannot use it; psco export makes a page from it.";

// The page's own model and its first classes, from the bytes of its file and the facts beside it.
function openModel(bytes, facts) {
  const { metadata, tensors } = parseSafetensors(bytes);
  const about = JSON.parse(metadata.about);
  const weights = {};
  for (const [name, tensor] of Object.entries(tensors)) {
    if (name.startsWith("network.")) weights[name.slice("network.".length)] = tensor;
  }
  const model = {
    about,
    weights,
    image: about.recipe.image,
    calibration: about.calibration,
    views: facts.views,
    network: buildNetwork(weights, facts.shape),
    key: sha256(weights["backbone.0.weight"].data),
  };
  return { model, classes: readExamples(about, tensors) };
}

function readExamples(about, tensors) {
  const part = (name) => {
    const { shape, dtype, data } = tensors[`shots.${name}`];
    const width = shape.slice(1).reduce((a, b) => a * b, 1);
    if (shape[0] !== about.labels.length) throw new Error(`shots.${name} has another length`);
    const numbers = dtype === "U8" ? data : toFloats(tensors[`shots.${name}`]);
    return (place) => numbers.slice(place * width, (place + 1) * width);
  };
  const [features, support, query, pictures] = ["features", "support", "query", "pictures"].map(part);
  let classes = [];
  about.labels.forEach((label, i) => {
    const example = {
      name: about.names[i],
      thumbnail: pictures(i),
      features: features(i),
      support: support(i),
      query: query(i),
    };
    classes = addExample(classes, String(label), example);
  });
  return classes;
}

function writePsco(model, classes, fitted, threshold) {
  const rows = classes.flatMap(({ name, examples }) => examples.map((each) => [name, each]));
  const longest = Math.max(1, ...classes.map(({ name }) => [...name].length));
  const about = {
    ...model.about,
    labels: rows.map(([name]) => name),
    label_type: `<U${longest}`,
    names: rows.map(([, example]) => example.name),
    temperature: fitted.temperature,
    threshold,
  };
  about.parameters = { ...about.parameters, reject_below: threshold === null ? null : "auto" };
  const tensors = {};
  for (const [name, tensor] of Object.entries(model.weights)) tensors[`network.${name}`] = tensor;
  for (const part of ["features", "support", "query"]) {
    const numbers = rows.flatMap(([, example]) => Array.from(example[part]));
    tensors[`shots.${part}`] = floatTensor(numbers, [rows.length, numbers.length / rows.length]);
  }
  const { channels } = model.image;
  const pictures = new Uint8Array(rows.length * THUMBNAIL * THUMBNAIL * channels);
  rows.forEach(([, { thumbnail }], i) => pictures.set(thumbnail, i * thumbnail.length));
  const shape = [rows.length, THUMBNAIL, THUMBNAIL, channels];
  tensors["shots.pictures"] = { dtype: "U8", shape, data: pictures };
  const metadata = { kind: KIND, version: "1", about: JSON.stringify(about), sha256: BLANK };
  const file = writeSafetensors(tensors, metadata);
  file.set(new TextEncoder().encode(sha256(file)), findDigits(file, BLANK));
  return file;
}

// Where the 64 digits of the checksum are; quotes inside JSON are escaped, so there is one place.
function findDigits(file, digits) {
  const header = new DataView(file.buffer, file.byteOffset).getUint32(0, true);
  const wanted = new TextEncoder().encode(`"sha256":"${digits}"`);
  const end = Math.min(file.length, 8 + header) - wanted.length;
  for (let at = 8; at <= end; at++) {
    if (wanted.every((byte, i) => file[at + i] === byte)) return at + '"sha256":"'.length;
  }
  return -1;
}

function readPsco(model, bytes, source) {
  let file;
  try {
    file = parseSafetensors(bytes);
  } catch {
    throw new Problem(`${source} is not a classifier of psco, or it was cut short.`);
  }
  const { metadata, tensors } = file;
  if (metadata.kind !== KIND) throw new Problem(`${source} is not a classifier of psco.`);
  const copy = bytes.slice();
  const place = findDigits(copy, metadata.sha256);
  if (place >= 0) copy.set(new TextEncoder().encode(BLANK), place);
  if (sha256(copy) !== metadata.sha256) {
    throw new Problem(`${source} is damaged: its checksum differs. Copy it again.`);
  }
  if (metadata.version !== "1") {
    throw new Problem(`${source} has format ${metadata.version}, and this page reads 1.`);
  }
  if (!hasSameNetwork(model, tensors)) throw new Problem(`${source} ${ANOTHER}`);
  const about = JSON.parse(metadata.about);
  const isLimited = about.parameters.reject_below === "auto";
  return { classes: readExamples(about, tensors), threshold: isLimited ? about.threshold : undefined };
}

// Whether a file has the weights of this page; it may hold them in 32 bits.
function hasSameNetwork(model, tensors) {
  return Object.entries(model.weights).every(([name, own]) => {
    const theirs = tensors[`network.${name}`];
    if (!theirs || theirs.shape.join() !== own.shape.join()) return false;
    if (own.dtype === "I64") return true;
    const [a, b] = [toFloats(own), toFloats(theirs)];
    return a.every((value, i) => Math.abs(value - b[i]) <= 1e-3 * Math.abs(value) + 1e-6);
  });
}

function writeJson(model, classes, threshold) {
  const packed = (example) => ({
    name: example.name,
    picture: toBase64(example.thumbnail),
    ...Object.fromEntries(
      ["features", "support", "query"].map((part) => [
        part,
        toBase64(bytesOf(Float32Array.from(example[part]))),
      ]),
    ),
  });
  const content = {
    format: FORMAT,
    version: 1,
    encoder: model.key,
    threshold,
    classes: classes.map(({ name, examples }) => ({ name, examples: examples.map(packed) })),
  };
  return JSON.stringify(content);
}

function readJson(model, text, source) {
  let content;
  try {
    content = JSON.parse(text);
  } catch {
    throw new Problem(`${source} is not JSON, or it was cut short.`);
  }
  if (content?.format !== FORMAT) throw new Problem(`${source} holds no classes of such a page.`);
  if (content.encoder !== model.key) throw new Problem(`${source} ${ANOTHER}`);
  try {
    const unpacked = (example) => {
      const read = { name: String(example.name), thumbnail: fromBase64(example.picture) };
      const side = THUMBNAIL * THUMBNAIL * model.image.channels;
      if (read.thumbnail.length !== side) throw new Error("thumbnail");
      for (const part of ["features", "support", "query"]) {
        read[part] = new Float32Array(fromBase64(example[part]).buffer);
        if (!read[part].length || !read[part].every(Number.isFinite)) throw new Error(part);
      }
      return read;
    };
    let classes = [];
    for (const { name, examples } of content.classes) {
      const clean = cleanName(String(name), classes);
      for (const example of examples) classes = addExample(classes, clean, unpacked(example));
    }
    return { classes, threshold: content.threshold ?? undefined };
  } catch (error) {
    if (error instanceof Problem) throw new Problem(`${source}: ${error.message}`);
    throw new Problem(`${source} is damaged: an example cannot be read. Save it again.`);
  }
}
