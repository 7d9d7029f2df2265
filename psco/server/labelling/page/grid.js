// A grid of any number of pictures, of which only those on the screen exist as elements.

import { el } from "./dom.js";
import { Frame } from "./frame.js";
import { clearSelection, extend, select, selectedCount, toggle, watchSelection } from "./selection.js";
import { watch } from "./state.js";
import { drawTile, tile } from "./tile.js";
import { openZoom } from "./zoom.js";

const GAP = 10; // px between tiles
const CAPTION = 24; // px below a picture
const NARROW = 480; // px of a phone, where pictures are smaller
const MARGIN = 400; // px above and below the screen in which tiles exist already

export class Grid {
  /**
   * @param scroller the element that scrolls, around `host`
   * @param host the element to fill
   * @param size the smallest width of a picture in px
   */
  constructor(scroller, host, { size = 128 } = {}) {
    this.scroller = scroller;
    this.host = host;
    this.size = size;
    this.numbers = [];
    this.tiles = new Map();
    host.classList.add("grid");
    this.draw = this.draw.bind(this);
    scroller.addEventListener("scroll", this.draw, { passive: true });
    this.resizing = new ResizeObserver(() => this.layout());
    this.resizing.observe(host);
    this.stops = [watch(() => this.redraw()), watchSelection(() => this.redraw())];
    this.frame = new Frame(host, (area, add) => select(this.within(area), { add }));
  }

  close() {
    this.scroller.removeEventListener("scroll", this.draw);
    this.resizing.disconnect();
    this.frame.close();
    for (const stop of this.stops) stop();
  }

  /** Show these pictures, in this order. */
  show(numbers) {
    this.numbers = numbers;
    for (const element of this.tiles.values()) element.remove();
    this.tiles.clear();
    this.layout();
  }

  layout() {
    const width = this.host.clientWidth;
    if (width === 0) return;
    const size = width < NARROW ? 0.8 * this.size : this.size;
    this.columns = Math.max(2, Math.floor((width + GAP) / (size + GAP)));
    this.width = (width + GAP) / this.columns - GAP;
    this.height = this.width + CAPTION;
    const rows = Math.ceil(this.numbers.length / this.columns);
    this.host.style.height = `${Math.max(0, rows * (this.height + GAP) - GAP)}px`;
    for (const element of this.tiles.values()) element.remove();
    this.tiles.clear();
    this.draw();
  }

  draw() {
    if (!this.columns) return;
    const top = this.scroller.getBoundingClientRect().top - this.host.getBoundingClientRect().top;
    const step = this.height + GAP;
    const first = Math.max(0, Math.floor((top - MARGIN) / step)) * this.columns;
    const bottom = top + this.scroller.clientHeight + MARGIN;
    const last = Math.min(this.numbers.length, Math.ceil(bottom / step) * this.columns);
    const wanted = new Set();
    for (let place = first; place < last; place++) {
      wanted.add(place);
      if (!this.tiles.has(place)) this.add(place);
    }
    for (const [place, element] of this.tiles) {
      if (wanted.has(place)) continue;
      element.remove();
      this.tiles.delete(place);
    }
  }

  add(place) {
    const element = tile(this.numbers[place], (number, event) => this.click(number, event));
    const row = Math.floor(place / this.columns);
    const column = place % this.columns;
    element.style.width = `${this.width}px`;
    element.style.height = `${this.height}px`;
    element.style.transform =
      `translate(${column * (this.width + GAP)}px, ${row * (this.height + GAP)}px)`;
    this.tiles.set(place, element);
    this.host.append(element);
  }

  redraw() {
    for (const element of this.tiles.values()) drawTile(element);
  }

  click(number, event) {
    if (this.frame.justDrawn) return;
    const on = event.target.classList;
    const modified = event.ctrlKey || event.metaKey || on.contains("tick");
    if (event.shiftKey) extend(number, this.numbers);
    else if (on.contains("look")) openZoom(number, this.numbers);
    else if (modified || selectedCount() > 0) toggle(number);
    else openZoom(number, this.numbers);
  }

  /** Return the pictures that a rectangle touches, also those off the screen. */
  within({ left, top, right, bottom }) {
    const across = this.width + GAP;
    const down = this.height + GAP;
    const from = Math.max(0, Math.floor((left + GAP) / across));
    const to = Math.min(this.columns - 1, Math.floor(right / across));
    const found = [];
    for (let row = Math.max(0, Math.floor((top + GAP) / down)); row <= bottom / down; row++) {
      for (let column = from; column <= to; column++) {
        const place = row * this.columns + column;
        if (place < this.numbers.length) found.push(this.numbers[place]);
      }
    }
    return found;
  }
}

/** Return a bar above a grid: how many are selected, and what can be done with them. */
export function selectionBar(all) {
  const text = el("span");
  const bar = el(
    "div",
    { class: "selection" },
    text,
    el("button", { class: "quiet", onclick: clearSelection }, "Clear"),
    el("button", { class: "quiet", onclick: () => select(all()) }, "Select all"),
  );
  const draw = () => {
    const number = selectedCount();
    text.textContent = number === 0 ? "" : `${number.toLocaleString("en")} selected`;
    bar.classList.toggle("some", number > 0);
  };
  draw();
  return { bar, stop: watchSelection(draw) };
}
