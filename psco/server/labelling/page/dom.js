// Elements without markup in strings: a name from a file or from a person is always plain text.

/**
 * Return an element with properties and children.
 * `on…` properties are listeners, `class` and others attributes; strings become text.
 */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** Return an element of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function byId(name) {
  return document.getElementById(name);
}

/** Return a number with its noun: "1 picture", "1,200 pictures", "3 classes". */
export function counted(number, noun) {
  const plural = noun.endsWith("s") ? `${noun}es` : `${noun}s`;
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
}

export function percent(fraction) {
  return `${Math.round(100 * fraction)}\u00a0%`;
}

/** Return a duration in words: "40 s", "3 min", "1 h 5 min". */
export function duration(seconds) {
  const minutes = Math.round(seconds / 60);
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

let hiding = 0;

/** Show a sentence at the bottom of the page for a few seconds. */
export function note(text, kind = "") {
  const notes = byId("notes");
  notes.textContent = text;
  notes.className = `shown ${kind}`;
  clearTimeout(hiding);
  hiding = setTimeout(() => (notes.className = ""), kind === "error" ? 8000 : 3500);
}

/**
 * Return a function that calls `work`, but never twice at the same time: of the calls that come
 * meanwhile, only the last is made. A browser has few connections, and pictures need them.
 */
export function oneAtATime(work) {
  let busy = false;
  let next = null;
  const run = async (...words) => {
    if (busy) {
      next = words;
      return;
    }
    busy = true;
    try {
      await work(...words);
    } finally {
      busy = false;
      const waiting = next;
      next = null;
      if (waiting !== null) run(...waiting);
    }
  };
  return run;
}

/** Ask for one line of text in a dialog; resolves to null if it is cancelled. */
export function ask(question, value, action) {
  const dialog = byId("asking");
  const field = el("input", { value, "aria-label": question, autocomplete: "off", maxLength: 100 });
  return new Promise((resolve) => {
    const finish = (answer) => {
      dialog.close();
      resolve(answer);
    };
    const form = el(
      "div",
      { class: "asking" },
      el("label", {}, question, field),
      el(
        "div",
        { class: "actions" },
        el("button", { onclick: () => finish(null) }, "Cancel"),
        el("button", { class: "main", onclick: () => finish(field.value.trim() || null) }, action),
      ),
    );
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") finish(field.value.trim() || null);
    });
    dialog.oncancel = () => resolve(null);
    dialog.replaceChildren(form);
    dialog.showModal();
    field.select();
  });
}
