"use strict";

// Sends pictures to /classify, a few at a time, and shows the answers, the newest first.

const AT_ONCE = 16;
const byId = (id) => document.getElementById(id);
const [files, drop, message, results] = ["files", "drop", "message", "results"].map(byId);

function show(text, isError = false) {
  message.textContent = text;
  message.classList.toggle("error", isError);
}

function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

function percent(probability) {
  return `${(100 * probability).toFixed(1)} %`;
}

function card(file, result) {
  const item = document.createElement("li");
  const picture = document.createElement("img");
  picture.src = URL.createObjectURL(file);
  picture.onload = () => URL.revokeObjectURL(picture.src);
  picture.onerror = () => picture.classList.add("broken");
  picture.alt = "";
  const label = element("div", result.error ?? String(result.label), "label");
  label.classList.toggle("unknown", Boolean(result.unknown || result.error));
  const table = document.createElement("table");
  for (const { label: name, probability } of result.probabilities ?? []) {
    const row = table.insertRow();
    row.insertCell().textContent = String(name);
    row.insertCell().textContent = percent(probability);
  }
  item.append(picture, label, table, element("div", file.name, "name"));
  return item;
}

async function send(some) {
  const form = new FormData();
  for (const file of some) form.append("images", file, file.name);
  const response = await fetch("classify?top=3", { method: "POST", body: form });
  const answer = await response.json();
  if (response.ok) return answer.results;
  // If no picture of a request can be read, the answer is one error for all of them.
  if (response.status === 422) return some.map(() => ({ error: answer.error }));
  throw new Error(answer.error);
}

async function classify(list) {
  const chosen = [...list];
  if (!chosen.length) return;
  let done = 0;
  try {
    for (let start = 0; start < chosen.length; start += AT_ONCE) {
      show(`${done} of ${chosen.length} classified`);
      const some = chosen.slice(start, start + AT_ONCE);
      const answers = await send(some);
      results.prepend(...some.map((file, place) => card(file, answers[place])));
      done += answers.filter((answer) => !answer.error).length;
    }
    show(`${done} of ${chosen.length} classified`);
  } catch (error) {
    show(`${done} of ${chosen.length} classified; then: ${error.message}`, true);
  }
}

files.addEventListener("change", async () => {
  await classify(files.files);
  files.value = "";
});
document.addEventListener("paste", (event) => classify(event.clipboardData.files));
for (const name of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", name === "dragover");
    if (name === "drop") classify(event.dataTransfer.files);
  });
}
fetch("health")
  .then((response) => response.json())
  .then((health) => {
    document.title = byId("title").textContent = `${health.name}: ${health.classes} classes`;
    byId("draw").hidden = !health.draw;
  })
  .catch(() => show("the server does not answer", true));
