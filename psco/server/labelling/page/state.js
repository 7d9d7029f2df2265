// The state of the session as this page knows it, and the changes that this page makes.

import { act, fetchState, get } from "./api.js";
import { note } from "./dom.js";

export const NONE = -1;
export const NONE_OF_THESE = -2;
export const NOT_USABLE = -3;
export const SPECIAL = new Map([
  [NONE_OF_THESE, "none of these"],
  [NOT_USABLE, "not usable"],
]);
const UNKNOWN = 1;
const CONFIRMED = 2;
const BROKEN = 4;
const POLL = 2500; // ms between looks for changes that another page made

const listeners = new Set();
let current = null;
let queue = Promise.resolve();
const pending = new Set(); // changes that are shown but not yet acknowledged
export let about = { folder: "", names: [], reasons: {} };

/** Call a function now and whenever the state changes; returns how to stop. */
export function watch(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const state = () => current;
export const count = () => current.labels.length;
export const isBroken = (number) => (current.flags[number] & BROKEN) !== 0;
export const isUnknown = (number) => (current.flags[number] & UNKNOWN) !== 0;
export const isConfirmed = (number) => (current.flags[number] & CONFIRMED) !== 0;
export const isLabelled = (number) => current.labels[number] !== NONE;
/** Whether a picture is waiting for a label. */
export const isOpen = (number) => !isLabelled(number) && !isBroken(number);

/** Return the name of a class, of "none of these" or of "not usable"; "" for no class. */
export function className(code) {
  return code >= 0 ? current.classes[code] : (SPECIAL.get(code) ?? "");
}

/** Return the sentence about the prediction of a picture, or "". */
export function guess(number) {
  if (current.predicted[number] === NONE) return "";
  if (isUnknown(number)) return "It is like no class so far.";
  return `Looks like ${className(current.predicted[number])}, ${current.chance[number]}\u00a0%.`;
}

/** Return the numbers of the pictures for which `test` holds, in order. */
export function numbersWhere(test) {
  const found = [];
  for (let number = 0; number < count(); number++) if (test(number)) found.push(number);
  return found;
}

/** Return how many pictures each class has, labelled and predicted. */
export function classCounts() {
  const labelled = new Array(current.classes.length).fill(0);
  const predicted = new Array(current.classes.length).fill(0);
  for (let number = 0; number < count(); number++) {
    const label = current.labels[number];
    if (label >= 0) labelled[label]++;
    else if (label === NONE && current.predicted[number] >= 0 && !isUnknown(number)) {
      predicted[current.predicted[number]]++;
    }
  }
  return { labelled, predicted };
}

export async function begin() {
  about = await get("pictures");
  replace(await fetchState(-1));
  setInterval(() => refresh(), POLL);
  document.addEventListener("visibilitychange", () => refresh());
}

async function refresh(since = current.revision) {
  if (document.hidden) return;
  try {
    const newer = await fetchState(since);
    if (newer !== null) replace(newer);
    document.body.classList.remove("offline");
  } catch {
    document.body.classList.add("offline");
  }
}

function replace(newer) {
  // Answers can overtake one another; the newest revision wins.
  if (current !== null && newer.revision < current.revision) return;
  current = newer;
  for (const foresee of pending) foresee();
  tell();
}

function tell() {
  for (const listener of [...listeners]) listener();
}

/**
 * Send a change; changes of this page are made one after the other.
 *
 * The server compares the revision that the page shows with the last change of each picture. If
 * another page labelled one of them since, nothing is changed, and this page shows the news.
 * Meanwhile `foresee` changes the state as the server will, so that the next key finds it so.
 */
export function change(what, foresee = () => {}) {
  pending.add(foresee);
  foresee();
  tell();
  queue = queue.then(async () => {
    try {
      const newer = await act(current.revision, what);
      pending.delete(foresee);
      replace(newer);
      return true;
    } catch (error) {
      pending.delete(foresee);
      note(error.message, "error");
      await refresh(-1);
      return false;
    }
  });
  return queue;
}

/** Wait until the server has acknowledged every change of this page. */
export const settled = () => queue;

/** Give pictures the class of this name, or a code of SPECIAL. */
export function giveLabel(numbers, label) {
  const usable = [...numbers].filter((number) => !isBroken(number));
  if (usable.length === 0) return Promise.resolve(false);
  const set = (code) => usable.forEach((number) => (current.labels[number] = code));
  if (typeof label === "number") {
    return change({ do: "mark", numbers: usable, code: label }, () => set(label));
  }
  const foresee = () => {
    if (!current.classes.includes(label)) current.classes.push(label);
    set(current.classes.indexOf(label));
  };
  return change({ do: "label", numbers: usable, name: label }, foresee);
}

/** Accept the predictions of pictures. */
export function confirm(numbers) {
  const chosen = [...numbers];
  const foresee = () => {
    for (const number of chosen) {
      current.labels[number] = current.predicted[number];
      current.flags[number] |= CONFIRMED;
    }
  };
  return change({ do: "confirm", numbers: chosen }, foresee);
}

export const clear = (numbers) => change({ do: "clear", numbers: [...numbers] });
export const undo = () => change({ do: "undo" });
export const redo = () => change({ do: "redo" });
export const rename = (old, name) => change({ do: "rename", old, new: name });
export const merge = (old, name) => change({ do: "merge", old, new: name });
