// From cosines to decisions, as in psco.classifier.confidence: temperature and rejection threshold.

const FALSE_REJECTION_RATE = 0.05;
const EXPECTED_LOGIT = 10;
const PRIOR_STD = 0.5;
const ENOUGH = 8; // held-out examples from which a mean and a standard deviation can be estimated
const MOST_LEFT_OUT = 200;
const SEARCH = { rounds: 5, grid: 33, range: Math.log(100) };
// Student's 95 % quantiles for 1, 2, ... degrees of freedom; from 20 examples on they are not needed.
const STUDENT = [
  6.313752, 2.919986, 2.353363, 2.131847, 2.015048, 1.94318, 1.894579, 1.859548, 1.833113, 1.812461,
  1.795885, 1.782288, 1.770933, 1.76131, 1.75305, 1.745884, 1.739607, 1.734064, 1.729133,
];

function softmax(scores, temperature) {
  const most = Math.max(...scores);
  const weights = scores.map((score) => Math.exp((score - most) / temperature));
  const sum = weights.reduce((a, b) => a + b, 0);
  return weights.map((weight) => weight / sum);
}

function logLoss(scores, truth, temperature) {
  const own = scores.map((row, i) => -Math.log(softmax(row, temperature)[truth[i]]));
  return mean(own);
}

function defaultTemperature(scores, truth) {
  const ways = scores[0].length;
  if (ways < 2) return 1;
  const margins = scores.map((row, i) => {
    const others = row.reduce((a, b) => a + b, 0) - row[truth[i]];
    return row[truth[i]] - others / (ways - 1);
  });
  const margin = mean(margins);
  return margin > 0 ? margin / EXPECTED_LOGIT : 1;
}

function fitTemperature(scores, truth, expected) {
  if (scores.length === 0) return expected;
  const prior = Math.log(expected);
  const loss = (log) =>
    scores.length * logLoss(scores, truth, Math.exp(log)) + ((log - prior) / PRIOR_STD) ** 2 / 2;
  let centre = prior;
  let width = SEARCH.range;
  for (let round = 0; round < SEARCH.rounds; round++) {
    const low = Math.max(centre - width, prior - SEARCH.range);
    const high = Math.min(centre + width, prior + SEARCH.range);
    let least = Infinity;
    for (let i = 0; i < SEARCH.grid; i++) {
      const log = low + ((high - low) * i) / (SEARCH.grid - 1);
      const value = loss(log);
      if (value < least) [least, centre] = [value, log];
    }
    width *= 4 / SEARCH.grid;
  }
  return Math.exp(centre);
}

// The similarity below which a picture belongs to no class; null if nothing is known about it.
function rejectionThreshold(genuine, expected) {
  const sorted = (values) => [...values].sort((a, b) => a - b);
  const rank = (number) => Math.floor(FALSE_REJECTION_RATE * (number + 1) + 1e-9);
  const isVague = genuine.length < ENOUGH && expected !== null;
  const values = sorted(isVague ? [...genuine, ...expected] : genuine);
  const place = rank(values.length);
  if (place > 0) return values[place - 1];
  if (values.length < 2) return null;
  const n = values.length;
  const centre = mean(values);
  const variance = values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (n - 1);
  return centre - STUDENT[n - 2] * Math.sqrt(variance * (1 + 1 / n));
}

function interpolate(x, xs, ys) {
  if (x <= xs[0]) return ys[0];
  for (let i = 1; i < xs.length; i++) {
    if (x <= xs[i]) return ys[i - 1] + ((ys[i] - ys[i - 1]) * (x - xs[i - 1])) / (xs[i] - xs[i - 1]);
  }
  return ys[ys.length - 1];
}

// {temperature, similarity} that a run's calibration expects of one-shot tasks of `ways` classes.
function expectedOf(calibration, ways) {
  const logs = calibration.ways.map(Math.log);
  const at = (values) => interpolate(Math.log(ways), logs, values);
  const quantiles = calibration.likeness[0].map((_, i) => at(calibration.likeness.map((row) => row[i])));
  return { temperature: at(calibration.temperature), similarity: quantiles };
}

// {temperature, threshold} of classes, each a list of examples {support, query}.
function calibrated(classes, calibration) {
  const sums = classes.map((examples) => sumOf(examples.map(({ support }) => support)));
  const centres = sums.map(unit);
  const own = [];
  const heldOut = [];
  const several = [];
  classes.forEach((examples, label) => {
    for (const example of examples) {
      own.push({ scores: centres.map((centre) => dot(example.query, centre)), label });
      if (examples.length > 1) several.push({ example, label });
    }
  });
  // Python draws 200 at random; here they are evenly spaced, so that the result is always the same.
  const step = Math.max(1, several.length / MOST_LEFT_OUT);
  for (let place = 0; place < several.length; place += step) {
    const { example, label } = several[Math.floor(place)];
    const without = unit(sums[label].map((value, i) => value - example.support[i]));
    const scores = centres.map((centre, other) =>
      dot(example.query, other === label ? without : centre),
    );
    heldOut.push({ scores, label });
  }
  const columns = (rows) => [rows.map((row) => row.scores), rows.map((row) => row.label)];
  const expected = calibration && expectedOf(calibration, classes.length);
  const prior = expected ? expected.temperature : defaultTemperature(...columns(own));
  return {
    temperature: fitTemperature(...columns(heldOut), prior),
    threshold: rejectionThreshold(
      heldOut.map(({ scores }) => Math.max(...scores)),
      expected ? expected.similarity : null,
    ),
  };
}

function sumOf(vectors) {
  const sum = new Float64Array(vectors[0].length);
  for (const vector of vectors) vector.forEach((value, i) => (sum[i] += value));
  return sum;
}
