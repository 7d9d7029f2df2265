// The page: waits until the pictures are embedded, then shows one of the views.

import { get } from "./api.js";
import { byId, el } from "./dom.js";
import { listenToKeys, showKeys } from "./keys.js";
import { draw as drawPanel, showPanel } from "./panel.js";
import { go, route, watchRoute } from "./route.js";
import { clearSelection } from "./selection.js";
import { about, begin, redo, state, undo, watch } from "./state.js";
import { acceptDrops, closeZoom } from "./zoom.js";
import * as check from "./view_check.js";
import * as confirm from "./view_confirm.js";
import * as finish from "./view_finish.js";
import * as label from "./view_label.js";
import * as map from "./view_map.js";
import * as pictures from "./view_pictures.js";
import { waitUntilReady } from "./waiting.js";

const VIEWS = { label, confirm, pictures, check, map, finish };
let close = () => {};

function show(name, options) {
  const view = VIEWS[name] ?? label;
  close();
  closeZoom();
  clearSelection();
  const host = byId("view");
  host.replaceChildren();
  host.scrollTop = 0;
  host.className = `view-${name in VIEWS ? name : "label"}`;
  for (const tab of byId("tabs").children) {
    tab.setAttribute("aria-current", String(tab.dataset.view === (name in VIEWS ? name : "label")));
  }
  close = view.open(host, options) ?? (() => {});
  drawPanel();
}

function drawHistory() {
  byId("undo").disabled = !state().can_undo;
  byId("redo").disabled = !state().can_redo;
}

function onLabelView(method) {
  return (...words) => (VIEWS[route()] ?? label)[method]?.(...words);
}

async function start() {
  const { folder } = await get("progress");
  byId("folder").textContent = folder;
  document.title = `${folder} – psco label`;
  await waitUntilReady(byId("view"));
  await begin();
  document.body.classList.remove("waiting");
  byId("folder").title = `${about.names.length} pictures`;
  byId("tabs").append(
    ...Object.entries(VIEWS).map(([name, view]) => {
      const tab = el("button", { onclick: () => go(name) }, view.title);
      tab.dataset.view = name;
      return tab;
    }),
  );
  showPanel();
  byId("undo").addEventListener("click", undo);
  byId("redo").addEventListener("click", redo);
  byId("help").addEventListener("click", showKeys);
  watch(drawHistory);
  drawHistory();
  listenToKeys({ step: onLabelView("step"), agree: onLabelView("agree") });
  acceptDrops();
  watchRoute(show);
  show(route() || "label", {});
}

start().catch((error) => {
  byId("view").replaceChildren(el("div", { class: "waiting-card" }, el("h1", {}, "This did not work"), el("p", {}, error.message)));
});
