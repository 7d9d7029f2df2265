// One picture of a grid: the thumbnail, what is known about it, and marks for selecting it.

import { thumbnail } from "./api.js";
import { colour } from "./colours.js";
import { el } from "./dom.js";
import { isSelected } from "./selection.js";
import {
  NONE, about, className, isBroken, isConfirmed, isLabelled, isUnknown, state,
} from "./state.js";

/**
 * Return a tile for a picture.
 *
 * `onclick` gets the number and the event; the event's target tells the corner (".tick" or
 * ".look") from the picture.
 */
export function tile(number, onclick) {
  const image = el("img", { alt: "", draggable: false, decoding: "async" });
  if (!isBroken(number)) image.src = thumbnail(number);
  const element = el(
    "div",
    { class: "tile", role: "button", tabIndex: 0, title: about.names[number] },
    el("div", { class: "frame" }, image, el("span", { class: "why" })),
    el("span", { class: "tick", title: "Select" }),
    el("span", { class: "look", title: "Enlarge" }),
    el("div", { class: "caption" }, el("i"), el("span", { class: "name" }), el("span")),
  );
  element.dataset.number = number;
  image.addEventListener("error", () => element.classList.add("broken"));
  element.addEventListener("click", (event) => onclick(number, event));
  element.addEventListener("keydown", (event) => {
    if (event.key !== " " || event.target !== element) return;
    event.preventDefault();
    onclick(number, event);
  });
  drawTile(element);
  return element;
}

/** Show what is known now about the picture of a tile. */
export function drawTile(element) {
  const number = Number(element.dataset.number);
  const broken = isBroken(number);
  const labelled = isLabelled(number);
  const unknown = !labelled && isUnknown(number);
  const code = labelled ? state().labels[number] : state().predicted[number];
  const list = element.classList;
  list.toggle("selected", isSelected(number));
  list.toggle("labelled", labelled);
  list.toggle("confirmed", labelled && isConfirmed(number));
  list.toggle("broken", broken);
  const [dot, name, chance] = element.querySelector(".caption").children;
  const known = code !== NONE && !unknown;
  dot.style.background = known ? colour(code) : "transparent";
  dot.style.borderColor = colour(known ? code : NONE);
  name.textContent = broken ? "cannot be read" : unknown ? "unknown" : className(code);
  chance.textContent = labelled || !known || broken ? "" : `${state().chance[number]} %`;
  element.querySelector(".why").textContent = broken ? (about.reasons[number] ?? "") : "";
  element.setAttribute("aria-label", `${about.names[number]}: ${name.textContent || "no label"}`);
}
