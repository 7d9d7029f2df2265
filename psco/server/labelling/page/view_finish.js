// What to take away: a table, class folders, a classifier, a page.

import { get, post } from "./api.js";
import { counted, el, note } from "./dom.js";
import { classCounts, count, isBroken, isOpen, numbersWhere, state, watch } from "./state.js";

const HOW = {
  copy: "copy the files",
  link: "link the files (takes no space)",
  move: "move the files out of the folder of pictures",
};
let predicted = true;
let how = "copy";

const FILES = { csv: "labels.csv", classifier: "classifier.psco", page: "page.html" };
export const title = "Finish";

export function open(host) {
  const lead = el("p", { class: "lead" });
  const place = el("p", { class: "note" });
  const box = el("input", { type: "checkbox", checked: predicted });
  box.addEventListener("change", () => (predicted = box.checked));
  const also = el("span");
  const select = el("select", { "aria-label": "How" }, Object.entries(HOW).map(([key, text]) => el("option", { value: key }, text)));
  select.value = how;
  select.addEventListener("change", () => (how = select.value));
  const cards = el(
    "div",
    { class: "cards" },
    card("Table", "labels.csv has a line for each picture: its name, its class, and whether you labelled it, confirmed it or it was predicted.", [
      el("button", { class: "main", onclick: (event) => write("csv", event.target) }, "Write labels.csv"),
      el("button", { onclick: () => download("csv") }, "Download"),
    ]),
    card("Class folders", "One folder for each class, with its pictures.", [
      select,
      el("button", { class: "main", onclick: (event) => write("folders", event.target) }, "Write folders"),
    ]),
    card("Classifier", "classifier.psco knows your classes. psco classify classifier.psco more-pictures labels new pictures.", [
      el("button", { class: "main", onclick: (event) => write("classifier", event.target) }, "Write classifier.psco"),
      el("button", { onclick: () => download("classifier") }, "Download"),
    ]),
    card("Page", "page.html classifies and learns from a double click, without psco and without a network. It contains your labelled pictures, small.", [
      el("button", { class: "main", onclick: (event) => write("page", event.target) }, "Write page.html"),
      el("button", { onclick: () => download("page") }, "Download"),
    ]),
  );
  const written = el("ul", { class: "written" });
  host.append(
    el("div", { class: "finish" }, lead, el("label", { class: "switch" }, box, also), cards, place, written),
  );
  get("export").then(({ folder }) => (place.textContent = `Files are written to ${folder}. Your labels are kept either way.`));
  const draw = () => {
    const { labelled, predicted: guessed } = classCounts();
    const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
    const left = numbersWhere(isOpen).length - sum(guessed);
    const usable = count() - numbersWhere(isBroken).length;
    lead.textContent =
      `${counted(sum(labelled), "picture")} of ${usable.toLocaleString("en")} in ` +
      `${counted(state().classes.length, "class")} have a label. ${counted(sum(guessed), "more picture")} ` +
      `${sum(guessed) === 1 ? "has" : "have"} a prediction, ${left.toLocaleString("en")} neither.`;
    also.textContent = `Write the ${counted(sum(guessed), "prediction")} too, not only labels`;
  };
  draw();
  const write = async (what, button) => {
    button.disabled = true;
    try {
      const { path, pictures } = await post("export", { what, how, predicted });
      const size = what === "csv" || what === "folders" ? `: ${counted(pictures, "picture")}` : "";
      written.prepend(el("li", {}, `Written ${path}${size}`));
    } catch (error) {
      note(error.message, "error");
    }
    button.disabled = false;
  };
  return watch(draw);
}

function card(name, text, actions) {
  return el("section", {}, el("h2", {}, name), el("p", { class: "note" }, text), el("div", { class: "actions" }, actions));
}

async function download(what) {
  const address = `api/download/${what}${predicted ? "?predicted" : ""}`;
  const answer = await fetch(address);
  if (!answer.ok) {
    note((await answer.json()).error, "error");
    return;
  }
  const link = el("a", { download: FILES[what] });
  link.href = URL.createObjectURL(await answer.blob());
  link.click();
  URL.revokeObjectURL(link.href);
}
