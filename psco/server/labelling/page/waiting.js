// What is shown while the pictures are embedded: how far it is, and the time left.

import { get, thumbnail } from "./api.js";
import { counted, duration, el } from "./dom.js";

const INTERVAL = 500; // ms
const WALL = 40; // pictures to look at meanwhile

/** Show progress until the server is ready. Throws if it cannot be. */
export async function waitUntilReady(host) {
  const bar = el("progress", { max: 1 });
  const text = el("p", { class: "note" });
  const wall = el("div", { class: "wall", "aria-hidden": "true" });
  for (;;) {
    const { ready, error, done, total, seconds_left: left } = await get("progress");
    if (error) throw new Error(error);
    if (ready) return;
    if (!bar.isConnected) {
      host.replaceChildren(
        el(
          "div",
          { class: "waiting-card" },
          el("h1", {}, "Getting to know your pictures"),
          el("p", {}, "Each picture is turned into a list of numbers that says what it looks like. This happens once."),
          bar,
          text,
        ),
        wall,
      );
      wall.append(...spread(total).map((number) => el("img", { src: thumbnail(number), alt: "" })));
    }
    bar.value = total > 0 ? done / total : 0;
    text.textContent = `${done.toLocaleString("en")} of ${counted(total, "picture")}`;
    if (left !== null) text.textContent += `, about ${duration(left)} left`;
    await new Promise((resolve) => setTimeout(resolve, INTERVAL));
  }
}

function spread(total) {
  const number = Math.min(WALL, total);
  return Array.from({ length: number }, (_, place) => Math.floor((place * total) / number));
}
