// The pictures that a class is given to when it is picked: the enlarged one, those selected, or
// what the view offers.

import { clearSelection, selected } from "./selection.js";
import { giveLabel } from "./state.js";
import { stepZoom, zoomed } from "./zoom.js";

const NOTHING = { numbers: () => [], done: () => {}, what: "" };
let offer = NOTHING;

/** Offer the pictures of a view; `done` is called once they were sent, `what` names them. */
export function setOffer(numbers, done, what) {
  offer = { numbers, done, what };
}

export function withdrawOffer() {
  offer = NOTHING;
}

/** Return the pictures that a class would be given to now. */
export function target() {
  if (zoomed() !== null) return { numbers: [zoomed()], what: "the enlarged picture" };
  const chosen = selected();
  if (chosen.length > 0) {
    const what = chosen.length === 1 ? "the selected picture" : `${chosen.length} selected pictures`;
    return { numbers: chosen, what };
  }
  return { numbers: offer.numbers(), what: offer.what };
}

/** Give the target a class by name, or a code of SPECIAL; returns whether there was a target. */
export function pick(label) {
  const { numbers } = target();
  if (numbers.length === 0) return false;
  const large = zoomed() !== null;
  const chosen = !large && selected().length > 0;
  giveLabel(numbers, label);
  if (large) stepZoom(1);
  else if (chosen) clearSelection();
  else offer.done(numbers);
  return true;
}
