// The pictures that are selected, shared by all views.

const chosen = new Set();
const listeners = new Set();
let last = null; // where a range with Shift begins

export const selected = () => [...chosen];
export const isSelected = (number) => chosen.has(number);
export const selectedCount = () => chosen.size;

export function watchSelection(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell() {
  for (const listener of [...listeners]) listener();
}

export function select(numbers, { add = false } = {}) {
  if (!add) chosen.clear();
  for (const number of numbers) chosen.add(number);
  tell();
}

export function toggle(number) {
  if (!chosen.delete(number)) chosen.add(number);
  last = number;
  tell();
}

/** Select everything between the last toggled picture and this one, in the order of a list. */
export function extend(number, order) {
  const from = order.indexOf(last);
  const to = order.indexOf(number);
  if (from < 0 || to < 0) return toggle(number);
  return select(order.slice(Math.min(from, to), Math.max(from, to) + 1), { add: true });
}

export function deselect(numbers) {
  for (const number of numbers) chosen.delete(number);
  tell();
}

export function clearSelection() {
  if (chosen.size === 0) return false;
  chosen.clear();
  tell();
  return true;
}
