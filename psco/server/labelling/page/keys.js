// The keyboard: digits pick classes, letters begin a name, arrows move.

import { byId, el } from "./dom.js";
import { classOfKey, typeName } from "./panel.js";
import { clearSelection } from "./selection.js";
import { NONE, NONE_OF_THESE, NOT_USABLE, confirm, isOpen, isUnknown, redo, state, undo } from "./state.js";
import { pick, target } from "./target.js";
import { closeZoom, stepZoom, zoomed } from "./zoom.js";

const KEYS = [
  ["1 – 9", "give a class"],
  ["a letter", "type the name of a class; Enter gives it, Tab completes it"],
  ["Enter", "agree with the prediction"],
  ["0", "none of these classes"],
  ["Delete", "not usable: blurred, empty, not a picture of anything"],
  ["→", "skip to the next picture; ← back"],
  ["Ctrl + Z", "undo; Ctrl + Shift + Z redo"],
  ["Shift + click", "select up to here; Ctrl + click selects one more"],
  ["Esc", "close, or select nothing"],
];

/** Handle keys; `step` moves in the view by 1 or −1, `agree` is called after Enter. */
export function listenToKeys({ step, agree }) {
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea, dialog#asking")) return;
    const control = event.ctrlKey || event.metaKey;
    if (control && event.key.toLowerCase() === "z") {
      event.preventDefault();
      if (event.shiftKey) redo();
      else undo();
      return;
    }
    if (control && event.key.toLowerCase() === "y") {
      event.preventDefault();
      redo();
      return;
    }
    if (control || event.altKey) return;
    if (plain(event, step, agree)) event.preventDefault();
  });
}

function plain(event, step, agree) {
  const { key } = event;
  if (key === "Escape") return closeZoom() || clearSelection();
  if (key === "?") return showKeys();
  if (key === "ArrowRight" || key === "ArrowLeft") {
    const by = key === "ArrowRight" ? 1 : -1;
    if (zoomed() !== null) stepZoom(by);
    else step(by);
    return true;
  }
  if (key === "Enter") return !event.target.closest("button, a, .tile") && agreeAll(agree);
  if (key === "Delete" || key === "Backspace") return pick(NOT_USABLE);
  if (key === "0" && !state().classes.includes("0")) return pick(NONE_OF_THESE);
  if (/^\d$/.test(key)) {
    const name = key === "0" ? "0" : classOfKey(key);
    if (name !== undefined) return pick(name);
  }
  // Any other character begins the name of a class: the field gets this key press itself.
  if (key.length === 1 && key !== " ") typeName();
  return false;
}

function agreeAll(agree) {
  const numbers = target().numbers.filter(
    (number) => isOpen(number) && state().predicted[number] !== NONE && !isUnknown(number),
  );
  if (numbers.length === 0) return false;
  confirm(numbers);
  if (zoomed() !== null) stepZoom(1);
  else if (!clearSelection()) agree(numbers);
  return true;
}

/** Show what the keys do. */
export function showKeys() {
  const dialog = byId("asking");
  dialog.replaceChildren(
    el("h2", {}, "Keys"),
    el(
      "dl",
      { class: "keys" },
      KEYS.map(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)]),
    ),
    el("div", { class: "actions" }, el("button", { class: "main", onclick: () => dialog.close() }, "Close")),
  );
  dialog.showModal();
  return true;
}
