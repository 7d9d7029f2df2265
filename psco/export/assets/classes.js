// The classes and their examples. A list of classes [{name, examples}] is never changed: every
// function returns a new one, so that undo is the list before.
//
// An example is {name, thumbnail, features, support, query}, the thumbnail as (32, 32, channels) bytes.

const UNKNOWN = "unknown";
const THUMBNAIL = 32;

// A problem of the user's making, with a sentence to show.
class Problem extends Error {}

function cleanName(text, classes, except = null) {
  const name = text.trim().replace(/\s+/g, " ");
  if (name === "") throw new Problem("A class needs a name.");
  if (name.length > 60) throw new Problem("A name has at most 60 characters.");
  if (name.toLowerCase() === UNKNOWN) {
    throw new Problem("“unknown” marks what belongs to no class; choose another name.");
  }
  if (name !== except && classes.some((each) => each.name === name)) {
    throw new Problem(`There is a class “${name}” already.`);
  }
  return name;
}

function makeExample(model, bytes, name) {
  const { image } = model;
  const planes = toPlanes(bytes, image.source_size, image.channels);
  const small = resizePlanes(planes, image.source_size, image.channels, THUMBNAIL);
  return { name, thumbnail: toBytes(small, THUMBNAIL, image.channels), ...embed(model, bytes) };
}

function addExample(classes, name, example) {
  if (!classes.some((each) => each.name === name)) return [...classes, { name, examples: [example] }];
  return classes.map((each) =>
    each.name === name ? { name, examples: [...each.examples, example] } : each,
  );
}

function removeExample(classes, name, place) {
  const left = classes.map((each) =>
    each.name === name ? { name, examples: each.examples.filter((_, i) => i !== place) } : each,
  );
  return left.filter(({ examples }) => examples.length > 0);
}

function renameClass(classes, name, text) {
  const renamed = cleanName(text, classes, name);
  return classes.map((each) => (each.name === name ? { ...each, name: renamed } : each));
}

function removeClass(classes, name) {
  return classes.filter((each) => each.name !== name);
}

// A classifier of these classes: null without any, else {temperature, threshold, classify}.
function fitClasses(model, classes) {
  if (classes.length === 0) return null;
  const examples = classes.map((each) => each.examples);
  const { temperature: fittest, threshold } = calibrated(examples, model.calibration);
  const chosen = model.about.parameters.temperature; // a number, or "auto"
  const temperature = typeof chosen === "number" ? chosen : fittest;
  const centres = examples.map((each) => unit(sumOf(each.map(({ support }) => support))));
  const everyone = classes.flatMap(({ name, examples }) =>
    examples.map((example) => ({ name, example })),
  );

  // {label, probabilities, similarity, nearest} of an embedding; the label is that of no class if
  // the similarity is below the limit.
  function classify(embedding, limit = threshold) {
    const scores = centres.map((centre) => dot(embedding.query, centre));
    const similarity = Math.max(...scores);
    const { name: best } = classes[scores.indexOf(similarity)];
    const near = everyone.map(({ example }) => dot(embedding.query, example.support));
    return {
      label: limit !== null && similarity < limit ? UNKNOWN : best,
      best,
      similarity,
      probabilities: softmax(scores, temperature),
      nearest: everyone[near.indexOf(Math.max(...near))],
    };
  }
  return { temperature, threshold, classify };
}
