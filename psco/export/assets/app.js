// The page: one state, a history of states, and what the user can do.

const MOST_UNDO = 200;
const { model, classes: firstClasses } = openModel(
  fromBase64($("model").textContent),
  JSON.parse($("facts").textContent),
);

// `threshold` is undefined as long as the calibrated one holds.
let state = { classes: firstClasses, strokes: [], picture: null, threshold: undefined };
let past = [];
let future = [];
let fitted = fitClasses(model, state.classes);
let subject = null; // the drawing or picture, embedded
let isSaved = true;

function change(next) {
  past = [...past.slice(-MOST_UNDO), state];
  future = [];
  apply({ ...state, ...next });
}

function apply(next) {
  if (next.classes !== state.classes) {
    fitted = fitClasses(model, next.classes);
    isSaved = false;
  }
  const isNew = next.strokes !== state.strokes || next.picture !== state.picture;
  state = next;
  if (isNew) subject = embedSubject();
  show();
}

function step(from, to) {
  if (from.length === 0) return;
  to.push(state);
  apply(from.pop());
}
const undo = () => step(past, future);
const redo = () => step(future, past);

function embedSubject() {
  const { strokes, picture } = state;
  if (!picture && strokes.length === 0) return null;
  const pixels = picture ?? drawnPicture(strokes);
  const bytes = fitSquare(pixels, model.image.source_size, model.image.channels);
  return makeExample(model, bytes, picture?.name ?? "drawing");
}

function show() {
  const limit = state.threshold ?? fitted?.threshold ?? null;
  const prediction = subject && fitted ? fitted.classify(subject, limit) : null;
  showPad(state);
  showSeen(model, subject);
  showResult(model, state.classes, subject, prediction);
  showLimit(fitted, state.threshold);
  showClasses(model, state.classes, subject, prediction, act);
  $("undo").disabled = past.length === 0;
  $("redo").disabled = future.length === 0;
  $("clear").disabled = subject === null;
  $("save-json").disabled = $("save-psco").disabled = state.classes.length === 0;
  $("name").placeholder = prediction && prediction.label !== UNKNOWN ? prediction.label : "a name";
  document.body.dataset.label = prediction?.label ?? ""; // for tests and style sheets
}

// Run an action of the user; a Problem becomes a sentence and changes nothing.
async function attempt(action) {
  try {
    await action();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showMessage(error.message, true);
    show();
  }
}

const act = {
  teach: (name) =>
    attempt(() => {
      if (subject === null) throw new Problem("There is nothing to teach yet: draw something first.");
      const isKnown = state.classes.some((each) => each.name === name);
      const clean = isKnown ? name : cleanName(name, state.classes);
      const classes = addExample(state.classes, clean, subject);
      change({ classes, strokes: [], picture: null });
      const count = classes.find((each) => each.name === clean).examples.length;
      showMessage(`Learned ${clean}: ${count === 1 ? "1 example" : `${count} examples`}.`);
    }),
  rename: (name, field) =>
    attempt(() => {
      if (field.value !== name) change({ classes: renameClass(state.classes, name, field.value) });
    }),
  remove: (name) => {
    change({ classes: removeClass(state.classes, name) });
    showMessage(`Removed ${name}. Undo brings it back.`);
  },
  removeExample: (name, place) => {
    change({ classes: removeExample(state.classes, name, place) });
    showMessage(`Removed an example of ${name}. Undo brings it back.`);
  },
  clear: () => subject && change({ strokes: [], picture: null }),
};

// Files: pictures to classify or, dropped on a class, to teach; and saved classes.
function takeFiles(files, target) {
  return attempt(async () => {
    const pictures = files.filter(isPicture);
    if (pictures.length === 0) return files.length ? openClasses(files[0]) : undefined;
    const name = target?.dataset.name;
    if (name === undefined) {
      const picture = await readPicture(pictures[0]);
      change({ strokes: [], picture: { ...picture, name: pictures[0].name || "picture" } });
      if (pictures.length > 1) showMessage("This is the first one. Drop several on a class to teach them all.");
      return undefined;
    }
    let { classes } = state;
    for (const file of pictures) {
      const pixels = fitSquare(await readPicture(file), model.image.source_size, model.image.channels);
      classes = addExample(classes, name, makeExample(model, pixels, file.name));
    }
    change({ classes });
    return showMessage(`Learned ${pictures.length === 1 ? "1 picture" : `${pictures.length} pictures`} of ${name}.`);
  });
}

async function openClasses(file) {
  const { classes, threshold } = await readClasses(model, file);
  change({ classes, threshold });
  isSaved = true;
  const count = classes.length === 1 ? "1 class" : `${classes.length} classes`;
  showMessage(`Opened ${count} from ${file.name}. Undo brings the others back.`);
}

function save(kind) {
  const limit = state.threshold ?? fitted.threshold;
  const content =
    kind === "json"
      ? writeJson(model, state.classes, state.threshold)
      : writePsco(model, state.classes, fitted, limit !== null && limit < 0 ? null : limit);
  download(content, `classes.${kind}`);
  $("save").open = false;
  isSaved = true;
}

watchStrokes($("pad"), {
  began: (stroke) => showPad({ ...state, strokes: state.picture ? [stroke] : [...state.strokes, stroke], picture: null }),
  moved: (stroke) => showPad({ ...state, strokes: state.picture ? [stroke] : [...state.strokes, stroke], picture: null }),
  ended: (stroke) => change({ strokes: state.picture ? [stroke] : [...state.strokes, stroke], picture: null }),
});
watchFiles(takeFiles, (element) => element.closest?.("#classes li") ?? $("paper"));
for (const [button, input] of [["open", "open-file"], ["picture", "picture-file"], ["photo", "photo-file"]]) {
  $(button).addEventListener("click", () => $(input).click());
  $(input).addEventListener("change", async () => {
    await takeFiles([...$(input).files], null);
    $(input).value = ""; // the same file can be chosen again
  });
}
$("undo").addEventListener("click", undo);
$("redo").addEventListener("click", redo);
$("clear").addEventListener("click", act.clear);
$("save-json").addEventListener("click", () => save("json"));
$("save-psco").addEventListener("click", () => save("psco"));
$("threshold").addEventListener("input", () => {
  apply({ ...state, threshold: Number($("threshold").value) });
});
$("calibrate").addEventListener("click", () => change({ threshold: undefined }));
$("teach").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = $("name");
  const isNamed = field.value.trim() !== "";
  act.teach(isNamed ? field.value.trim() : document.body.dataset.label.replace(UNKNOWN, ""));
  field.value = "";
  field.blur();
});

addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input:not([type=range])");
  const isCommand = event.ctrlKey || event.metaKey;
  if (event.key === "Escape") {
    $("save").open = false;
    if (isTyping) event.target.blur();
    else act.clear();
  } else if (isTyping || event.altKey) {
    return;
  } else if (isCommand && event.key.toLowerCase() === "z") {
    event.preventDefault();
    (event.shiftKey ? redo : undo)();
  } else if (isCommand && event.key.toLowerCase() === "y") {
    event.preventDefault();
    redo();
  } else if (isCommand) {
    return;
  } else if (event.key === "Enter" && event.target === document.body) {
    const { label } = document.body.dataset;
    if (subject && label && label !== UNKNOWN) act.teach(label);
  } else if (event.key.toLowerCase() === "n") {
    event.preventDefault();
    $("name").focus();
  } else if (/^[1-9]$/.test(event.key) && subject && state.classes[event.key - 1]) {
    act.teach(state.classes[event.key - 1].name);
  }
});
addEventListener("click", (event) => $("save").contains(event.target) || ($("save").open = false));
addEventListener("beforeunload", (event) => isSaved || event.preventDefault());

show();
// The first passes are slow until the browser has compiled the loops; nobody waits for these.
const blank = new Uint8Array(model.image.source_size ** 2 * model.image.channels).fill(255);
for (let pass = 0; pass < 4; pass++) setTimeout(() => embed(model, blank), 30 + 60 * pass);
