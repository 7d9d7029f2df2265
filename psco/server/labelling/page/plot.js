// The accuracy over the number of labels, as a drawing: a line within its interval.

import { svg } from "./dom.js";

const LEFT = 34; // px for the numbers of the axis
const BOTTOM = 18;
const TOP = 6;

/**
 * Return a drawing of the history: rows [labels, accuracy, low, high], accuracies in [0, 1].
 */
export function drawPlot(history, { width, height }) {
  const drawing = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    class: "plot",
    role: "img",
    "aria-label": "Accuracy over the number of labels",
  });
  if (history.length < 2) return drawing;
  const most = history[history.length - 1][0];
  const least = history[0][0];
  const lowest = Math.floor(10 * Math.min(...history.map((row) => row[2]))) / 10;
  const floor = Math.min(lowest, 0.9);
  const x = (labels) => LEFT + ((labels - least) / Math.max(1, most - least)) * (width - LEFT - 8);
  const y = (value) => TOP + ((1 - value) / (1 - floor)) * (height - BOTTOM - TOP);
  for (const value of [floor, (1 + floor) / 2, 1]) {
    drawing.append(
      svg("line", { x1: LEFT, x2: width - 8, y1: y(value), y2: y(value), class: "rule" }),
      text(LEFT - 5, y(value) + 4, `${Math.round(100 * value)}`, "end"),
    );
  }
  const path = (rows, column) => rows.map((row) => `${x(row[0])},${y(row[column])}`);
  const area = [...path(history, 3), ...path([...history].reverse(), 2)];
  const [last] = history.slice(-1);
  drawing.append(
    svg("polygon", { points: area.join(" "), class: "band" }),
    svg("polyline", { points: path(history, 1).join(" "), class: "line" }),
    svg("circle", { cx: x(last[0]), cy: y(last[1]), r: 3, class: "end" }),
    text(LEFT, height - 4, String(least), "start"),
    text(width - 8, height - 4, `${most.toLocaleString("en")} labels`, "end"),
  );
  return drawing;
}

function text(x, y, words, anchor) {
  const element = svg("text", { x, y, "text-anchor": anchor });
  element.textContent = words;
  return element;
}
