// Predictions by class, the most doubtful first: click the wrong ones, confirm the others at once.

import { counted, el } from "./dom.js";
import { colour } from "./colours.js";
import { drawPlot } from "./plot.js";
import { deselect, isSelected, selected, toggle, watchSelection } from "./selection.js";
import { confirm, isOpen, isUnknown, numbersWhere, state, watch } from "./state.js";
import { estimate, watchEstimate, words } from "./summary.js";
import { drawTile, tile } from "./tile.js";
import { openZoom } from "./zoom.js";

const TILE = 118; // px with its gap
const ROWS = 5; // rows of a page
let wide = new Set(); // classes of which a whole page is shown

export const title = "Confirm";

export function open(host) {
  const quality = el("section", { class: "estimate" });
  const lead = el("p", { class: "lead" });
  const sections = el("div");
  host.append(el("div", { class: "confirm" }, quality, lead, sections));
  const drawQuality = () => {
    if (estimate() === null) return;
    quality.replaceChildren(
      el("div", {}, words(estimate())),
      drawPlot(estimate().history, { width: 420, height: 130 }),
    );
  };
  const columns = () => Math.max(3, Math.floor((sections.clientWidth + 10) / TILE));
  const draw = () => {
    const groups = byClass();
    const all = groups.flatMap(({ numbers }) => numbers).length;
    lead.textContent =
      all === 0
        ? "There is nothing to confirm: label a few pictures of two classes first."
        : "Click the pictures that are wrong, then confirm the others. The most doubtful are first.";
    sections.replaceChildren(...groups.map((group) => section(group, columns())));
  };
  const mark = () => {
    for (const element of sections.querySelectorAll(".tile")) drawTile(element);
    for (const element of sections.querySelectorAll("section")) element.count();
  };
  const stops = [watch(draw), watchSelection(mark), watchEstimate(drawQuality)];
  const resizing = new ResizeObserver(() => draw());
  resizing.observe(host);
  draw();
  drawQuality();
  return () => {
    resizing.disconnect();
    for (const stop of stops) stop();
  };
}

function byClass() {
  const { classes, predicted, chance } = state();
  const groups = classes.map((name, code) => ({ name, code, numbers: [] }));
  for (const number of numbersWhere((each) => isOpen(each) && predicted[each] >= 0)) {
    if (!isUnknown(number)) groups[predicted[number]].numbers.push(number);
  }
  for (const { numbers } of groups) numbers.sort((a, b) => chance[a] - chance[b] || a - b);
  return groups.filter(({ numbers }) => numbers.length > 0);
}

function section({ name, code, numbers }, columns) {
  const shown = numbers.slice(0, columns * (wide.has(name) ? ROWS : 1));
  const dot = el("i", { class: "dot" });
  dot.style.background = colour(code);
  const button = el("button", { class: "main" });
  const right = () => shown.filter((number) => !isSelected(number));
  button.addEventListener("click", () => {
    const agreed = right();
    const wrong = selected().filter((number) => shown.includes(number));
    if (agreed.length > 0) confirm(agreed);
    if (wrong.length === 0) deselect(agreed);
  });
  const more = numbers.length > columns || wide.has(name);
  const turn = el(
    "button",
    { class: "quiet" },
    wide.has(name) ? "Show a row" : `Show ${Math.min(numbers.length, columns * ROWS)}`,
  );
  turn.addEventListener("click", () => {
    if (!wide.delete(name)) wide.add(name);
    element.replaceWith(section({ name, code, numbers }, columns));
  });
  const tiles = el(
    "div",
    { class: "tiles" },
    shown.map((number) =>
      tile(number, (each, event) => {
        if (event.target.classList.contains("look")) openZoom(each, shown);
        else toggle(each);
      }),
    ),
  );
  tiles.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  const element = el(
    "section",
    {},
    el(
      "header",
      {},
      dot,
      el("h2", {}, name),
      el("span", { class: "note" }, `${counted(numbers.length, "prediction")}`),
      el("span", { class: "actions" }, more ? turn : null, button),
    ),
    tiles,
  );
  element.count = () => {
    const number = right().length;
    button.textContent = wide.has(name) ? `Confirm these ${number}` : `Confirm row of ${number}`;
    button.disabled = number === 0;
  };
  element.count();
  return element;
}
