// The first view: one picture at a time, the one that helps most, and those that look like it.

import { get, picture, thumbnail } from "./api.js";
import { counted, el, oneAtATime } from "./dom.js";
import { draw as drawPanel, forgetTyped, placeField } from "./panel.js";
import { NONE, about, className, confirm, count, guess, isOpen, isUnknown, numbersWhere, state, watch } from "./state.js";
import { setOffer, withdrawOffer } from "./target.js";
import { openZoom } from "./zoom.js";

const AHEAD = 24; // suggestions asked for
const ALIKE = 48; // pictures of a group that are shown
const WHY = {
  typical: "The most typical of pictures that look alike.",
  uncertain: "It may be of one class or another: it teaches most.",
  far: "It is unlike everything labelled so far: perhaps a new class.",
};

let suggestions = []; // [number, reason], the current one first
let past = []; // those that were labelled or skipped
let asked = -1; // the revision for which suggestions were asked
let group = { size: 0, numbers: [] };
let together = false; // whether the look-alikes get the same label
let left = new Set(); // look-alikes that were clicked away

const parts = {
  lead: el("p", { class: "lead" }),
  stage: el("div", { class: "stage" }),
  alike: el("section", { class: "alike" }),
  next: el("div", { class: "strip" }),
};
const typing = el("div", { class: "typing" });

export const title = "Label";

export function open(host) {
  host.append(
    el("div", { class: "label" }, parts.lead, parts.stage, parts.alike, el("h2", {}, "Next"), parts.next),
  );
  const stop = watch(changed);
  if (suggestions.length > 0) show();
  askAgain();
  return () => {
    stop();
    placeField();
    withdrawOffer();
  };
}

/** Go to the next suggestion, or back to the one before. */
export function step(by) {
  if (by > 0) move(1);
  else if (past.length > 0) {
    suggestions.unshift(past.pop());
    show();
  }
}

export const agree = () => move(1);

function numbers() {
  if (suggestions.length === 0) return [];
  return together ? [suggestions[0][0], ...included()] : [suggestions[0][0]];
}

const included = () => group.numbers.filter((number) => !left.has(number) && isOpen(number));

function move(by) {
  past.push(...suggestions.splice(0, by));
  past = past.slice(-200);
  show();
}

function changed() {
  drawGuess();
  askAgain();
}

const askAgain = oneAtATime(async () => {
  const { revision } = state();
  if (asked === revision) return;
  const skipped = past.map(([number]) => number).filter(isOpen);
  // Always one of few counts: the server keeps what it computed for each of them.
  const wanted = AHEAD * Math.ceil(1 + skipped.length / AHEAD);
  const news = await get(`suggest?count=${wanted}`);
  asked = revision;
  // The picture that is looked at stays; only what follows it changes.
  const [current] = suggestions;
  const keep = current !== undefined && isOpen(current[0]) ? [current] : [];
  const seen = new Set([...skipped, ...keep.map(([number]) => number)]);
  suggestions = [...keep, ...news.filter(([number]) => !seen.has(number))].slice(0, AHEAD);
  show();
});

function show() {
  if (!parts.stage.isConnected) return; // an answer that came after the view was left
  while (suggestions.length > 0 && !isOpen(suggestions[0][0])) past.push(suggestions.shift());
  drawLead();
  parts.next.replaceChildren(...suggestions.slice(1, 13).map(nextTile));
  parts.next.previousElementSibling.hidden = suggestions.length < 2;
  if (suggestions.length === 0) {
    placeField();
    parts.stage.replaceChildren();
    parts.alike.replaceChildren();
    withdrawOffer();
    drawPanel();
    return;
  }
  const [[number, reason]] = suggestions;
  placeField(typing);
  if (Number(parts.stage.dataset.number) !== number || !parts.stage.hasChildNodes()) {
    parts.stage.dataset.number = number;
    forgetTyped();
    const image = el("img", { alt: about.names[number], title: "Click to enlarge" });
    image.style.backgroundImage = `url("${thumbnail(number)}")`;
    image.addEventListener("load", () => {
      image.classList.toggle("tiny", Math.max(image.naturalWidth, image.naturalHeight) < 64);
      image.style.backgroundImage = "none";
    });
    image.src = picture(number);
    image.addEventListener("click", () => openZoom(number, suggestions.map(([each]) => each)));
    parts.stage.replaceChildren(
      image,
      el(
        "div",
        { class: "about" },
        el("p", { class: "guess" }),
        el("p", { class: "note" }, WHY[reason]),
        typing,
        actions(),
      ),
    );
    together = false;
    left = new Set();
    group = { size: 0, numbers: [] };
    lookAlikes(number);
  }
  drawAlike();
  drawGuess();
  drawPanel();
}

function actions() {
  return el(
    "div",
    { class: "actions" },
    el("button", { class: "main yes", onclick: agreeNow }, ""),
    el("button", { onclick: () => move(1), title: "→" }, "Skip"),
  );
}

function agreeNow() {
  confirm(numbers());
  move(1);
}

function drawLead() {
  const open = numbersWhere(isOpen).length;
  const { classes, labels } = state();
  const labelled = labels.some((label) => label !== NONE);
  if (suggestions.length === 0 && open === 0) parts.lead.textContent = "Every picture has a label.";
  else if (!labelled) {
    parts.lead.textContent = `${counted(count(), "picture")}, none labelled yet. Type what this one shows and press Enter.`;
  } else if (classes.length < 2) parts.lead.textContent = "Good. With a second class, all other pictures get a prediction.";
  else parts.lead.textContent = "";
  parts.lead.hidden = parts.lead.textContent === "";
}

function drawGuess() {
  if (suggestions.length === 0 || !parts.stage.hasChildNodes()) return;
  const [[number]] = suggestions;
  const yes = parts.stage.querySelector(".yes");
  const code = state().predicted[number];
  const sure = code !== NONE && !isUnknown(number);
  parts.stage.querySelector(".guess").textContent = guess(number) || "What is this?";
  yes.hidden = !sure;
  yes.replaceChildren("Yes, ", el("b", {}, sure ? className(code) : ""), el("kbd", {}, "↵"));
}

const lookAlikes = oneAtATime(async (number) => {
  if (suggestions.length === 0 || suggestions[0][0] !== number) return;
  const found = await get(`group?number=${number}&count=${ALIKE}`);
  if (suggestions.length === 0 || suggestions[0][0] !== number) return;
  group = found;
  drawAlike();
});

function drawAlike() {
  if (!parts.stage.isConnected) return;
  setOffer(numbers, () => move(1), together ? counted(numbers().length, "picture") : "this picture");
  const shown = group.numbers.filter(isOpen);
  parts.alike.replaceChildren();
  if (shown.length === 0) return;
  const box = el("input", { type: "checkbox", checked: together });
  box.addEventListener("change", () => {
    together = box.checked;
    drawAlike();
    drawPanel();
  });
  const said = together
    ? `Label ${counted(included().length, "look-alike")} as well; click those that differ`
    : `${counted(shown.length, "picture")} like it: label them as well`;
  parts.alike.classList.toggle("together", together);
  parts.alike.replaceChildren(
    el("label", { class: "switch" }, box, el("span", {}, said)),
    el("div", { class: "strip wrap" }, shown.map(alikeTile)),
  );
}

function alikeTile(number) {
  const image = el("img", { src: thumbnail(number), alt: "", title: about.names[number], loading: "lazy" });
  const element = el("button", { class: left.has(number) ? "mini left" : "mini" }, image);
  element.addEventListener("click", () => {
    if (!together) return openZoom(number, group.numbers);
    if (!left.delete(number)) left.add(number);
    drawAlike();
    return drawPanel();
  });
  return element;
}

function nextTile([number], place) {
  const image = el("img", { src: thumbnail(number), alt: "", title: about.names[number] });
  return el("button", { class: "mini", onclick: () => move(place + 1) }, image);
}
