// A rectangle that the mouse draws over a grid or a map. Fingers scroll instead.

import { el } from "./dom.js";

const THRESHOLD = 6; // px that a click may tremble
const EDGE = 40; // px from the edge of the screen where the page scrolls along

export class Frame {
  /**
   * @param host where it can be drawn
   * @param ondraw gets the rectangle in the coordinates of `host`, and whether to add to what is
   *   selected already (Ctrl, ⌘ or Shift)
   */
  constructor(host, ondraw) {
    this.host = host;
    this.ondraw = ondraw;
    this.justDrawn = false;
    this.down = this.down.bind(this);
    this.move = this.move.bind(this);
    this.up = this.up.bind(this);
    host.addEventListener("pointerdown", this.down);
  }

  close() {
    this.host.removeEventListener("pointerdown", this.down);
    this.up();
  }

  down(event) {
    this.justDrawn = false;
    if (event.button !== 0 || event.pointerType === "touch") return;
    this.from = this.place(event);
    this.add = event.ctrlKey || event.metaKey || event.shiftKey;
    window.addEventListener("pointermove", this.move);
    window.addEventListener("pointerup", this.up);
  }

  place(event) {
    const box = this.host.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  move(event) {
    const to = this.place(event);
    const far = Math.hypot(to.x - this.from.x, to.y - this.from.y) > THRESHOLD;
    if (!this.rectangle && !far) return;
    if (!this.rectangle) {
      this.rectangle = el("div", { class: "rectangle" });
      this.host.append(this.rectangle);
      document.body.classList.add("drawing");
    }
    const area = {
      left: Math.min(this.from.x, to.x),
      top: Math.min(this.from.y, to.y),
      right: Math.max(this.from.x, to.x),
      bottom: Math.max(this.from.y, to.y),
    };
    this.rectangle.style.transform = `translate(${area.left}px, ${area.top}px)`;
    this.rectangle.style.width = `${area.right - area.left}px`;
    this.rectangle.style.height = `${area.bottom - area.top}px`;
    this.ondraw(area, this.add);
    this.scrollAlong(event);
  }

  scrollAlong(event) {
    const scroller = this.host.closest("main");
    if (!scroller) return;
    const box = scroller.getBoundingClientRect();
    if (event.clientY > box.bottom - EDGE) scroller.scrollTop += EDGE / 2;
    else if (event.clientY < box.top + EDGE) scroller.scrollTop -= EDGE / 2;
  }

  up() {
    window.removeEventListener("pointermove", this.move);
    window.removeEventListener("pointerup", this.up);
    if (!this.rectangle) return;
    this.rectangle.remove();
    this.rectangle = null;
    document.body.classList.remove("drawing");
    this.justDrawn = true; // the click that ends the frame is not a click on a picture
    setTimeout(() => (this.justDrawn = false));
  }
}
