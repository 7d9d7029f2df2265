// What deserves a second look: likely mistakes, near-duplicates, and pictures unlike all others.

import { get, thumbnail } from "./api.js";
import { counted, el, percent } from "./dom.js";
import { NOT_USABLE, about, clear, giveLabel, isLabelled, state, watch } from "./state.js";
import { drawTile, tile } from "./tile.js";
import { isSelected, toggle, watchSelection } from "./selection.js";
import { openZoom } from "./zoom.js";

const SHOWN = 60; // findings of each kind

export const title = "Check";

export function open(host) {
  const mistakes = section("Likely mistakes", "Labels that contradict the other labels.");
  const copies = section("Near-duplicates", "Almost the same picture twice. The first of each row is the one to keep.");
  const odd = section("Unlike all others", "Far from every other picture: another subject, a bad scan, a blank page.");
  host.append(el("div", { class: "check" }, mistakes.element, copies.element, odd.element));
  let shownAt = -1;
  const drawMistakes = async () => {
    if (shownAt === state().revision) return;
    shownAt = state().revision;
    const rows = await get("mistakes");
    mistakes.fill(rows.length, "No label contradicts the others.", rows.slice(0, SHOWN).map(mistakeRow));
  };
  const loadOthers = async () => {
    const groups = await get("duplicates");
    copies.fill(groups.length, "No picture is there twice.", groups.slice(0, SHOWN).map(copiesRow));
    const rows = await get("outliers");
    const numbers = rows.slice(0, SHOWN).map(([number]) => number);
    const tiles = el("div", { class: "tiles auto" }, numbers.map((number) => checkTile(number, numbers)));
    odd.fill(rows.length, "No picture stands out.", rows.length > 0 ? [tiles] : []);
  };
  drawMistakes();
  loadOthers();
  const redraw = () => {
    for (const element of host.querySelectorAll(".tile")) drawTile(element);
    for (const row of host.querySelectorAll(".copies")) row.draw();
  };
  const stops = [
    watch(() => {
      drawMistakes();
      redraw();
    }),
    watchSelection(redraw),
  ];
  return () => stops.forEach((stop) => stop());
}

function section(name, text) {
  const number = el("span", { class: "badge" });
  const body = el("div", { class: "body" }, el("p", { class: "note" }, "Looking …"));
  const element = el("section", {}, el("header", {}, el("h2", {}, name), number), el("p", { class: "note" }, text), body);
  const fill = (found, nothing, children) => {
    number.textContent = found > 0 ? found.toLocaleString("en") : "";
    body.replaceChildren(...(found > 0 ? children : [el("p", { class: "nothing" }, nothing)]));
  };
  return { element, fill };
}

/** A click selects, so that several can be labelled at once; the corner enlarges. */
function checkTile(number, order) {
  return tile(number, (each, event) => {
    if (event.target.classList.contains("look")) openZoom(each, order);
    else toggle(each);
  });
}

function mistakeRow([number, name, expected, chance]) {
  const image = el("img", { src: thumbnail(number), alt: "", title: about.names[number] });
  image.addEventListener("click", () => openZoom(number));
  return el(
    "div",
    { class: "mistake" },
    image,
    el(
      "p",
      {},
      "Labelled ",
      el("b", {}, name),
      ". The others say ",
      el("b", {}, expected),
      `, ${percent(chance)}.`,
      el("small", {}, about.names[number]),
    ),
    el(
      "span",
      { class: "actions" },
      el("button", { class: "main", onclick: () => giveLabel([number], expected) }, `Change to ${expected}`),
      el("button", { onclick: () => clear([number]) }, "Remove label"),
    ),
  );
}

function copiesRow([keep, others, similarity]) {
  const all = [keep, ...others];
  const tiles = el("div", { class: "tiles auto" }, all.map((number) => checkTile(number, all)));
  tiles.firstChild.classList.add("keep");
  const button = el("button", {});
  const open = () => others.filter((number) => !isLabelled(number) && !isSelected(number));
  button.addEventListener("click", () => giveLabel(open(), NOT_USABLE));
  const row = el(
    "div",
    { class: "copies" },
    tiles,
    el("p", { class: "note" }, `similarity ${similarity.toFixed(2)}`, el("span", { class: "actions" }, button)),
  );
  row.draw = () => {
    const number = open().length;
    button.textContent = `Keep the first, mark ${counted(number, "other")} not usable`;
    button.hidden = number === 0;
  };
  row.draw();
  return row;
}
