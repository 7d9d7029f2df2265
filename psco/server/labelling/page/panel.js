// The classes beside every view: pick one for the pictures in question, or type a new one.

import { colour } from "./colours.js";
import { ask, byId, counted, el, note } from "./dom.js";
import { go, route } from "./route.js";
import { watchSelection } from "./selection.js";
import {
  NONE_OF_THESE, NOT_USABLE, classCounts, merge, numbersWhere, rename, state, watch,
} from "./state.js";
import { summary } from "./summary.js";
import { pick, target } from "./target.js";
import { watchZoom } from "./zoom.js";

const field = el("input", {
  id: "name",
  autocomplete: "off",
  spellcheck: false,
  maxLength: 100,
  "aria-label": "Class",
});
const hint = el("p", { class: "hint" });
const list = el("div", { class: "classes" });
const special = el("div", { class: "classes special" });
const narrow = matchMedia("(max-width: 50rem)");
const keys = new Map(); // from the key to the name of its class

export function showPanel() {
  byId("panel").append(
    el("div", { class: "typing" }, field),
    hint,
    el("div", { class: "choices" }, list, special),
    el("div", { id: "summary" }, summary()),
  );
  field.addEventListener("input", draw);
  field.addEventListener("keydown", onkey);
  watch(draw);
  watchSelection(draw);
  watchZoom(draw);
  draw();
}

/** Show the field in a view instead; without a place, or on a narrow screen, above the classes. */
export function placeField(place = null) {
  const home = byId("panel").querySelector(".typing");
  const wanted = place === null || narrow.matches ? home : place;
  if (field.parentNode !== wanted) wanted.append(field); // moving it would end the typing
}

/** Forget what was typed: it was about another picture. */
export function forgetTyped() {
  field.value = "";
}

/** Let the next letters be typed into the field. */
export function typeName() {
  field.focus();
}

/** Return the class that a digit stands for, if any. */
export const classOfKey = (key) => keys.get(key);

function onkey(event) {
  if (event.key === "Enter") {
    event.preventDefault();
    event.stopPropagation();
    choose(wanted());
  } else if (event.key === "Escape") {
    field.value = "";
    field.blur();
    draw();
  } else if (event.key === "Tab" && field.value) {
    const [first] = matches();
    if (first === undefined) return;
    event.preventDefault();
    field.value = first;
    draw();
  }
}

/** Return the class that the typed text means: one that exists in whatever case, or a new one. */
function wanted() {
  const typed = field.value.trim();
  const same = (name) => name.toLowerCase() === typed.toLowerCase();
  return state().classes.find(same) ?? typed;
}

function matches() {
  const typed = field.value.trim().toLowerCase();
  const begins = (name) => name.toLowerCase().startsWith(typed);
  return state().classes
    .filter((name) => name.toLowerCase().includes(typed))
    .sort((a, b) => begins(b) - begins(a));
}

function choose(label) {
  if (label === "") return;
  if (!pick(label)) {
    if (typeof label === "string" && state().classes.includes(label)) go("pictures", { name: label });
    else note("select a picture first: drag a frame over some, or tick them");
  }
  field.value = "";
  field.blur();
  draw();
}

/** Draw the list again; called also when the pictures in question change. */
export function draw() {
  if (state() === null) return;
  assignKeys();
  const { numbers, what } = target();
  const some = numbers.length > 0;
  const none = state().classes.length === 0;
  field.placeholder = some ? (none ? "What is this? Type a name" : "Type or pick a class") : "Find a class";
  byId("panel").classList.toggle("idle", !some);
  hint.textContent = some ? `for ${what}` : none ? "" : "pick one to see its pictures";
  const counts = classCounts();
  const typed = field.value.trim();
  const rows = matches().map((name) => classRow(name, counts));
  if (typed && some && !state().classes.includes(wanted())) {
    rows.unshift(
      el(
        "button",
        { class: "class new", onclick: () => choose(typed) },
        el("kbd", {}, "↵"),
        el("span", { class: "name" }, `New class “${typed}”`),
      ),
    );
  }
  list.replaceChildren(...rows);
  const marked = (code) => numbersWhere((number) => state().labels[number] === code).length;
  special.replaceChildren(
    specialRow(NONE_OF_THESE, "0", "None of these", marked(NONE_OF_THESE)),
    specialRow(NOT_USABLE, "Del", "Not usable", marked(NOT_USABLE)),
  );
}

function assignKeys() {
  keys.clear();
  const free = [..."123456789"].filter((digit) => !state().classes.includes(digit));
  for (const name of state().classes) {
    // A class called "7" has the key 7.
    if (/^[1-9]$/.test(name)) keys.set(name, name);
    else if (free.length > 0) keys.set(free.shift(), name);
  }
}

function classRow(name, { labelled, predicted }) {
  const code = state().classes.indexOf(name);
  const key = [...keys].find(([, its]) => its === name)?.[0] ?? "";
  const dot = el("i");
  dot.style.background = colour(code);
  const row = el(
    "button",
    { class: "class", onclick: () => choose(name), title: name },
    el("kbd", {}, key),
    dot,
    el("span", { class: "name" }, name),
    el(
      "span",
      { class: "counts", title: `${counted(labelled[code], "label")}, ${predicted[code]} predicted` },
      el("b", {}, String(labelled[code])),
      predicted[code] > 0 ? ` + ${predicted[code].toLocaleString("en")}` : "",
    ),
  );
  const more = el(
    "button",
    { class: "more quiet", "aria-label": `Change ${name}`, onclick: () => edit(name) },
    "✎",
  );
  return el("div", { class: "row" }, row, more);
}

function specialRow(code, key, text, number) {
  const show = () => pick(code) || go("pictures", { label: code });
  return el(
    "div",
    { class: "row" },
    el(
      "button",
      { class: "class", onclick: show },
      el("kbd", {}, key),
      el("span", { class: "name" }, text),
      el("span", { class: "counts" }, number > 0 ? el("b", {}, String(number)) : ""),
    ),
  );
}

/** Rename a class; the name of another class merges the two. */
async function edit(name) {
  const others = state().classes.filter((other) => other !== name);
  const about = others.length > 0 ? " (the name of another class merges them)" : "";
  const answer = await ask(`New name for “${name}”${about}`, name, "Rename");
  if (answer === null || answer === name) return;
  const is = others.includes(answer);
  const made = await (is ? merge(name, answer) : rename(name, answer));
  if (made) note(is ? `“${name}” is now part of “${answer}”` : `“${name}” is now “${answer}”`);
  if (route() === "pictures") go("pictures", { name: answer });
}
