// One picture large, with what is known about it; arrows lead to its neighbours in the grid.

import { picture, thumbnail } from "./api.js";
import { byId, el, note, percent } from "./dom.js";
import {
  NONE, about, className, clear, confirm, count, isBroken, isLabelled, isUnknown, state, watch,
} from "./state.js";
import { go } from "./route.js";

let shown = null; // {number, order}
const listeners = new Set();

export const zoomed = () => (shown === null ? null : shown.number);

/** Call a function whenever another picture, or none, is enlarged. */
export const watchZoom = (listener) => listeners.add(listener);

function tell() {
  for (const listener of listeners) listener();
}

/** Show a picture large; `order` is the list in which the arrow keys move. */
export function openZoom(number, order = [number]) {
  shown = { number, order };
  draw();
  const dialog = byId("zoom");
  if (!dialog.open) dialog.show();
  tell();
}

export function closeZoom() {
  if (shown === null) return false;
  shown = null;
  byId("zoom").close();
  tell();
  return true;
}

/** Move to the next picture, or the one before it. */
export function stepZoom(by) {
  if (shown === null) return;
  const place = shown.order.indexOf(shown.number) + by;
  if (place >= 0 && place < shown.order.length) openZoom(shown.order[place], shown.order);
}

function draw() {
  const { number } = shown;
  const image = el("img", { class: "loading", alt: about.names[number] });
  image.style.backgroundImage = `url("${thumbnail(number)}")`;
  image.src = picture(number);
  // A small drawing is enlarged with its pixels visible, not blurred.
  image.addEventListener("load", () => {
    image.classList.remove("loading");
    image.classList.toggle("tiny", Math.max(image.naturalWidth, image.naturalHeight) < 64);
    image.style.backgroundImage = "none";
  });
  const stage = isBroken(number)
    ? el("p", { class: "broken" }, `This picture cannot be read: ${about.reasons[number] ?? ""}`)
    : image;
  byId("zoom").replaceChildren(
    el("div", { class: "stage", onclick: closeZoom }, stage),
    el("button", { class: "step before", "aria-label": "Previous", onclick: () => stepZoom(-1) }, "‹"),
    el("button", { class: "step after", "aria-label": "Next", onclick: () => stepZoom(1) }, "›"),
    el("button", { class: "shut", "aria-label": "Close", onclick: closeZoom }, "×"),
    el("div", { class: "known" }, el("span", { class: "file" }, about.names[number]), facts(number)),
  );
}

function facts(number) {
  const buttons = [];
  let text = "no label yet";
  if (isLabelled(number)) {
    text = `labelled ${className(state().labels[number])}`;
    buttons.push(el("button", { onclick: () => clear([number]) }, "Remove label"));
  } else if (isUnknown(number)) {
    text = "like no class so far";
  } else if (state().predicted[number] !== NONE) {
    const name = className(state().predicted[number]);
    text = `looks like ${name}, ${percent(state().chance[number] / 100)}`;
    buttons.push(el("button", { class: "main", onclick: () => confirm([number]) }, `Yes, ${name}`));
  }
  if (!isBroken(number)) {
    buttons.push(el("button", { onclick: () => findSimilar(number) }, "Find similar"));
  }
  return [el("span", { class: "label" }, text), el("span", { class: "actions" }, buttons)];
}

function findSimilar(number) {
  closeZoom();
  go("pictures", { similar: number });
}

watch(() => {
  if (shown !== null && shown.number < count()) draw();
});

/** Read a picture that was dropped on the page, and show what is like it. */
export function acceptDrops() {
  window.addEventListener("dragover", (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  window.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) document.body.classList.remove("dropping");
  });
  window.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    const [file] = event.dataTransfer.files;
    if (file) go("pictures", { dropped: file });
    else note("drop an image file to find pictures like it");
  });
}
