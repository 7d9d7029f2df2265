// How far the work is and how good the predictions are, below the classes.

import { get } from "./api.js";
import { counted, el, oneAtATime, percent } from "./dom.js";
import { count, isBroken, isConfirmed, isLabelled, numbersWhere, state, watch } from "./state.js";

const WIDE = 0.2; // an interval that says more than its middle
const WAIT = 400; // ms without a new label before the estimate is asked for again
let latest = null;
let waiting = 0;
const listeners = new Set();

/** Return the newest estimate of the accuracy, or null. */
export const estimate = () => latest;

export function watchEstimate(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Return the element that shows both; it keeps itself up to date. */
export function summary() {
  const bar = el("div", { class: "meter" }, el("i"), el("i"));
  const progress = el("p", { class: "progress" });
  const quality = el("div", { class: "quality" });
  const draw = () => {
    const labelled = numbersWhere(isLabelled).length;
    const confirmed = numbersWhere((number) => isLabelled(number) && isConfirmed(number)).length;
    const usable = count() - numbersWhere(isBroken).length;
    bar.children[0].style.width = `${(100 * (labelled - confirmed)) / usable}%`;
    bar.children[1].style.width = `${(100 * confirmed) / usable}%`;
    progress.textContent = `${labelled.toLocaleString("en")} of ${counted(usable, "picture")} labelled`;
    if (confirmed > 0) progress.textContent += `, ${confirmed.toLocaleString("en")} of them confirmed`;
    clearTimeout(waiting);
    waiting = setTimeout(ask, WAIT);
  };
  const ask = oneAtATime(async () => {
    if (latest !== null && latest.revision === state().revision) return;
    try {
      latest = await get("accuracy");
    } catch {
      return; // asked again after the next label
    }
    quality.replaceChildren(...words(latest).slice(0, 2));
    for (const listener of [...listeners]) listener();
  });
  watch(draw);
  draw();
  return [progress, bar, quality];
}

/** Return the estimate in words: the value, or a range if it is not known well, and its source. */
export function words({ left_out: leftOut, confirmed }) {
  if (leftOut === null && confirmed === null) {
    return [el("p", { class: "note" }, "Label two pictures of a class, and the accuracy is estimated here.")];
  }
  const lines = [];
  if (leftOut !== null) {
    const [low, high] = leftOut.interval;
    const range = `${Math.round(100 * low)} to ${percent(high)}`;
    const narrow = high - low <= WIDE;
    lines.push(
      el(
        "p",
        { class: "accuracy" },
        el("b", {}, narrow ? percent(leftOut.accuracy) : range),
        " of predictions are right",
      ),
      el(
        "p",
        { class: "note" },
        `${narrow ? `${range} with 95 % confidence. ` : ""}Each of ${counted(leftOut.count, "label")} `,
        "was predicted from the others.",
      ),
    );
  }
  if (confirmed !== null) {
    const [low, high] = confirmed.interval;
    lines.push(
      el(
        "p",
        { class: "note" },
        `Of ${counted(confirmed.count, "prediction")} that you judged, `,
        `${percent(confirmed.accuracy)} were right (${Math.round(100 * low)} to ${percent(high)}). `,
        "Suggested pictures are the hard ones.",
      ),
    );
  }
  return lines;
}
