// What the page shows. Text from files and users is set as text, never as HTML.

const $ = (id) => document.getElementById(id);
const SHOWN_BARS = 4;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Paint bytes (side, side, channels) on a canvas of that size.
function paintBytes(canvas, bytes, side, channels) {
  canvas.width = canvas.height = side;
  const pixels = new ImageData(side, side);
  for (let i = 0; i < side * side; i++) {
    for (let c = 0; c < 3; c++) pixels.data[4 * i + c] = bytes[i * channels + (c % channels)];
    pixels.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}

function thumbnail(model, example) {
  const canvas = element("canvas", { className: "thumb" });
  return paintBytes(canvas, example.thumbnail, THUMBNAIL, model.image.channels);
}

function percent(probability) {
  const rounded = Math.round(100 * probability);
  if (rounded === 100 && probability < 1) return "> 99 %";
  return rounded === 0 ? "< 1 %" : `${rounded} %`;
}

function showPad({ strokes, picture }) {
  const canvas = $("pad");
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (picture) {
    const { canvas: source, width, height } = picture;
    const side = Math.min(width, height);
    const [left, top] = [(width - side) / 2, (height - side) / 2];
    context.drawImage(source, left, top, side, side, 0, 0, canvas.width, canvas.height);
  }
  drawStrokes(context, strokes, canvas.width);
  $("invitation").hidden = Boolean(picture || strokes.length);
}

function showSeen(model, subject) {
  const { size, channels } = model.image;
  const canvas = $("seen").firstElementChild;
  if (subject) paintBytes(canvas, subject.seen, size, channels);
  else canvas.width = canvas.height = size; // blank
}

function showResult(model, classes, subject, prediction) {
  const result = $("result");
  if (subject === null || prediction === null) {
    const text =
      classes.length === 0
        ? "The answer will be here, from the first example on."
        : "Draw something to see what it is.";
    result.replaceChildren(element("p", { textContent: text }));
    return;
  }
  const { label, best, similarity, probabilities, nearest } = prediction;
  const isUnknown = label === UNKNOWN;
  const chance = percent(Math.max(...probabilities));
  const reason = isUnknown
    ? `nearest is ${best}, with a similarity of only ${similarity.toFixed(2)}`
    : `${classes.length > 1 ? `${chance} sure, ` : "the only class so far, "}similarity ${similarity.toFixed(2)}`;
  const answer = element(
    "div",
    { className: isUnknown ? "answer unknown" : "answer" },
    element("div", {}, element("strong", { textContent: label }), element("small", { textContent: reason })),
    element("figure", {}, thumbnail(model, nearest.example), element("figcaption", { textContent: "nearest" })),
  );
  const order = classes.map((_, i) => i).sort((a, b) => probabilities[b] - probabilities[a]);
  const bars = element("div", { className: "bars" });
  for (const i of classes.length > 1 ? order.slice(0, SHOWN_BARS) : []) {
    const bar = element("b");
    bar.style.width = `${100 * probabilities[i]}%`;
    bars.append(
      element("span", { textContent: classes[i].name }),
      element("i", {}, bar),
      element("em", { textContent: percent(probabilities[i]) }),
    );
  }
  result.replaceChildren(answer, bars);
}

function showLimit(fitted, threshold) {
  $("limit").hidden = fitted === null;
  if (fitted === null) return;
  const value = threshold ?? fitted.threshold;
  $("threshold").value = value ?? -0.01;
  $("threshold-value").textContent = value === null || value < 0 ? "(never)" : value.toFixed(2);
  $("calibrate").disabled = threshold === undefined;
}

// The list of classes; `act` has the functions that its buttons call.
function showClasses(model, classes, subject, prediction, act) {
  $("first").hidden = classes.length > 0;
  $("count").textContent = classes.length || "";
  $("names").replaceChildren(...classes.map(({ name }) => element("option", { value: name })));
  const items = classes.map(({ name, examples }, place) => {
    const field = element("input", { value: name, maxLength: 60, ariaLabel: `Name of class ${name}` });
    field.addEventListener("change", () => act.rename(name, field));
    field.addEventListener("keydown", (event) => event.key === "Enter" && field.blur());
    const add = element("button", { type: "button", textContent: "Teach", disabled: subject === null });
    add.ariaLabel = `Teach this as ${name}`;
    add.addEventListener("click", () => act.teach(name));
    const remove = element("button", { type: "button", className: "plain", textContent: "Remove" });
    remove.ariaLabel = `Remove class ${name}`;
    remove.addEventListener("click", () => act.remove(name));
    const key = place < 9 ? [element("kbd", { textContent: place + 1 })] : [];
    const pictures = examples.map((example, i) => {
      const button = element("button", { type: "button", title: `Remove ${example.name}` }, thumbnail(model, example));
      button.ariaLabel = `Remove example ${i + 1} of ${name}`;
      button.classList.toggle("nearest", prediction?.nearest.example === example);
      button.addEventListener("click", () => act.removeExample(name, i));
      return button;
    });
    const item = element(
      "li",
      {},
      element("div", { className: "head" }, ...key, field, add, remove),
      element("div", { className: "examples" }, ...pictures),
    );
    item.dataset.name = name;
    item.classList.toggle("best", prediction?.label === name);
    return item;
  });
  $("classes").replaceChildren(...items);
}

let messageTimer;
function showMessage(text, isProblem = false) {
  const message = $("message");
  message.textContent = text;
  message.hidden = false;
  message.classList.toggle("problem", isProblem);
  clearTimeout(messageTimer);
  messageTimer = setTimeout(() => (message.hidden = true), isProblem ? 12000 : 4000);
}
