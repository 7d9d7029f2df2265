// All pictures in a grid, or those of a class, of a label, or like another picture.

import { get, send } from "./api.js";
import { counted, el, note } from "./dom.js";
import { Grid, selectionBar } from "./grid.js";
import { NONE, SPECIAL, about, count, isBroken, isLabelled, isOpen, isUnknown, numbersWhere, state, watch } from "./state.js";

const SIZES = { small: 88, medium: 128, large: 208 };
let filter = { kind: "all" };
let order = "name";
let size = "medium";

export const title = "Pictures";

export function open(host, options) {
  if ("name" in options) filter = { kind: "class", name: options.name };
  if ("label" in options) filter = { kind: "code", code: options.label };
  if ("similar" in options || "dropped" in options) filter = { kind: "similar" };
  const box = el("div", { class: "box" });
  const found = el("span", { class: "found" });
  const grid = new Grid(host, box, { size: SIZES[size] });
  const { bar, stop } = selectionBar(() => grid.numbers);
  let classes = "";
  const controls = el("div", { class: "controls" });
  const draw = () => {
    classes = state().classes.join("\n");
    const again = () => {
      draw();
      host.scrollTop = 0;
    };
    controls.replaceChildren(
      choice("Show", filters(), filterKey(), (key) => {
        filter = JSON.parse(key);
        again();
      }),
      filter.kind === "similar"
        ? ""
        : choice("Order", { name: "by name", doubt: "most doubtful first", group: "alike together" }, order, (key) => {
            order = key;
            again();
          }),
      choice("Size", { small: "small", medium: "medium", large: "large" }, size, (key) => {
        size = key;
        grid.size = SIZES[key];
        grid.layout();
      }),
      found,
      bar,
    );
    list().then((numbers) => {
      found.textContent = counted(numbers.length, "picture");
      grid.show(numbers);
    });
  };
  const list = async () => {
    if (filter.kind === "similar") return filter.numbers ?? [];
    const chosen = numbersWhere(test());
    if (order === "doubt") return chosen.sort((a, b) => state().chance[a] - state().chance[b]);
    return order === "group" ? inGroups(chosen) : chosen;
  };
  host.append(controls, box);
  // A picture that was labelled stays where it is until something else is chosen: nothing jumps.
  const unwatch = watch(() => {
    if (classes !== state().classes.join("\n")) draw();
  });
  draw();
  if ("similar" in options) searchLike(options.similar).then(draw);
  if ("dropped" in options) searchDropped(options.dropped).then(draw);
  return () => {
    unwatch();
    stop();
    grid.close();
  };
}

async function searchLike(number) {
  const rows = await get(`similar?number=${number}&count=200`);
  filter = { kind: "similar", like: about.names[number], numbers: [number, ...rows.map(([each]) => each)] };
}

async function searchDropped(file) {
  try {
    const rows = await send("similar?count=200", file);
    filter = { kind: "similar", like: file.name, numbers: rows.map(([each]) => each) };
  } catch (error) {
    filter = { kind: "all" };
    note(error.message, "error");
  }
}

async function inGroups(numbers) {
  const groups = await get("clusters");
  return numbers.sort((a, b) => groups[a] - groups[b] || a - b);
}

function test() {
  const { labels, predicted, classes } = state();
  if (filter.kind === "open") return isOpen;
  if (filter.kind === "labelled") return isLabelled;
  if (filter.kind === "unknown") return (number) => isOpen(number) && isUnknown(number);
  if (filter.kind === "broken") return isBroken;
  if (filter.kind === "code") return (number) => labels[number] === filter.code;
  if (filter.kind === "class") {
    const code = classes.indexOf(filter.name);
    return (number) =>
      labels[number] === code ||
      (labels[number] === NONE && predicted[number] === code && !isUnknown(number));
  }
  return () => true;
}

function filters() {
  const entries = [
    [{ kind: "all" }, `all ${count().toLocaleString("en")}`],
    [{ kind: "open" }, "without a label"],
    [{ kind: "labelled" }, "labelled"],
    [{ kind: "unknown" }, "unknown"],
    ...state().classes.map((name) => [{ kind: "class", name }, name]),
    ...[...SPECIAL].map(([code, text]) => [{ kind: "code", code }, text]),
    [{ kind: "broken" }, "cannot be read"],
  ];
  if (filter.kind === "similar") entries.push([{ kind: "similar" }, `like ${filter.like ?? "…"}`]);
  return Object.fromEntries(entries.map(([key, text]) => [JSON.stringify(key), text]));
}

function filterKey() {
  return JSON.stringify(filter.kind === "similar" ? { kind: "similar" } : filter);
}

function choice(label, options, value, onchange) {
  const select = el(
    "select",
    {},
    Object.entries(options).map(([key, text]) => el("option", { value: key }, text)),
  );
  select.value = value;
  select.addEventListener("change", () => onchange(select.value));
  return el("label", { class: "choice" }, el("span", {}, label), select);
}
