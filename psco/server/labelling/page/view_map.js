// All pictures in the plane, like beside like. A frame on the map selects in the grid below.

import { fetchMap } from "./api.js";
import { colour } from "./colours.js";
import { el } from "./dom.js";
import { Frame } from "./frame.js";
import { Grid, selectionBar } from "./grid.js";
import { select } from "./selection.js";
import { NONE, count, isLabelled, isUnknown, state, watch } from "./state.js";
import { thumbnail } from "./api.js";

const PADDING = 14; // px between the points and the edge
const NEAR = 12; // px from the mouse to the picture that is shown
const AGAIN = 2000; // ms until the better map is asked for again

export const title = "Map";

export function open(host) {
  const canvas = el("canvas");
  const hover = el("img", { class: "hover", alt: "", hidden: true });
  const plane = el("div", { class: "plane" }, canvas, hover);
  const text = el("p", { class: "note" }, "Pictures that look alike are close together. Drag a frame to select.");
  const box = el("div", { class: "box" });
  const grid = new Grid(host, box, { size: 96 });
  const { bar, stop } = selectionBar(() => grid.numbers);
  host.append(el("div", { class: "map" }, text, plane, bar, box));
  let places = null;
  let closed = false;
  const side = () => [plane.clientWidth, plane.clientHeight];
  const draw = () => places && paint(canvas, places, side());
  const load = async (kind) => {
    const found = await fetchMap(kind);
    if (closed) return;
    if (found === null) setTimeout(() => closed || load(kind), AGAIN);
    else {
      places = found;
      draw();
      plane.classList.add("drawn");
    }
  };
  load("pca").then(() => load("tsne"));
  const frame = new Frame(plane, (area) => {
    if (!places) return;
    const found = within(places, area, side());
    select(found);
    grid.show(found);
  });
  plane.addEventListener("pointermove", (event) => {
    const number = places ? nearest(places, event, canvas, side()) : -1;
    hover.hidden = number < 0;
    if (number < 0) return;
    if (hover.dataset.number !== String(number)) hover.src = thumbnail(number);
    hover.dataset.number = number;
    const [x, y] = position(places, number, side());
    hover.style.transform = `translate(${x > side()[0] / 2 ? x - 128 : x + 16}px, ${Math.min(y, side()[1] - 116)}px)`;
  });
  plane.addEventListener("pointerleave", () => (hover.hidden = true));
  const resizing = new ResizeObserver(draw);
  resizing.observe(plane);
  const unwatch = watch(draw);
  return () => {
    closed = true;
    unwatch();
    stop();
    frame.close();
    grid.close();
    resizing.disconnect();
  };
}

function position(places, number, [width, height]) {
  const half = Math.min(width, height * 1.6) / 2 - PADDING;
  const x = width / 2 + places[2 * number] * half;
  const y = height / 2 + places[2 * number + 1] * (height / 2 - PADDING);
  return [x, y];
}

function paint(canvas, places, [width, height]) {
  const scale = devicePixelRatio;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const radius = Math.max(1.5, Math.min(5, 90 / Math.sqrt(count())));
  // The labelled ones last, so that they lie on top.
  for (const labelled of [false, true]) {
    for (let number = 0; number < count(); number++) {
      if (isLabelled(number) !== labelled || Number.isNaN(places[2 * number])) continue;
      const [x, y] = position(places, number, [width, height]);
      const code = labelled ? state().labels[number] : state().predicted[number];
      context.globalAlpha = labelled ? 1 : 0.5;
      context.fillStyle = colour(!labelled && isUnknown(number) ? NONE : code);
      context.beginPath();
      context.arc(x, y, labelled ? radius * 1.5 : radius, 0, 7);
      context.fill();
      if (labelled) {
        context.strokeStyle = getComputedStyle(canvas).color;
        context.stroke();
      }
    }
  }
}

function within(places, { left, top, right, bottom }, size) {
  const found = [];
  for (let number = 0; number < count(); number++) {
    const [x, y] = position(places, number, size);
    if (x >= left && x <= right && y >= top && y <= bottom) found.push(number);
  }
  return found;
}

function nearest(places, event, canvas, size) {
  const box = canvas.getBoundingClientRect();
  let best = -1;
  let least = NEAR;
  for (let number = 0; number < count(); number++) {
    const [x, y] = position(places, number, size);
    const far = Math.hypot(x - event.clientX + box.left, y - event.clientY + box.top);
    if (far < least) [best, least] = [number, far];
  }
  return best;
}
