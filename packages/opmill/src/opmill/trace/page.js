"use strict";
// Texts lie packed in the page; they are unpacked when a viewer is opened.
const unpacked = new Map();
async function unpack(id) {
  if (!unpacked.has(id)) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), c => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked.set(id, await new Response(stream).json());
  }
  return unpacked.get(id);
}

const linesOf = element => (element.dataset.lines || "").split(" ").filter(Boolean);
const foundIn = text => [...new Set([...text.matchAll(/(\/[^\s:;]+\.py:\d+)/g)].map(m => m[1]))];

function fill(box, text, own) {
  box.replaceChildren(...text.split("\n").map((line, k) => {
    const row = document.createElement("div");
    row.textContent = line || " ";
    const lines = own ? [`${own}:${k + 1}`] : foundIn(line);
    if (lines.length) row.dataset.lines = lines.join(" ");
    return row;
  }));
}

function mark(viewer, lines) {
  const wanted = new Set(lines), section = viewer.closest("section");
  for (const element of section.querySelectorAll("[data-lines]")) element.classList.toggle("on", linesOf(element).some(l => wanted.has(l)));
  for (const box of viewer.querySelectorAll(".code")) box.querySelector(".on")?.scrollIntoView({block: "nearest"});
}

function detail(viewer, data, lines) {
  const box = viewer.querySelector(".detail");
  box.replaceChildren();
  const add = (tag, text) => { const e = document.createElement(tag); e.textContent = text; box.append(e); return e; };
  add("h3", lines.join("  "));
  for (const step of data.plan.filter(s => lines.some(l => s.lines.includes(l)))) add("p", `${step.part} ${step.kind} ${step.name}: ${step.cost}`);
  for (const kernel of data.kernels.filter(k => lines.some(l => k.lines.includes(l)))) {
    const unfolded = document.createElement("details");
    const head = document.createElement("summary");
    head.textContent = `${kernel.part} kernel ${kernel.name}: loops and ${kernel.generator}`;
    unfolded.append(head);
    for (const text of [kernel.loops, kernel.text]) { const pre = document.createElement("pre"); pre.textContent = data.texts[text]; unfolded.append(pre); }
    box.append(unfolded);
  }
}

async function choose(viewer, lines) {
  const data = await open(viewer);
  const file = lines.map(l => l.slice(0, l.lastIndexOf(":"))).find(f => f in data.files);
  const source = viewer.querySelector(".source");
  if (file && source.value !== file) { source.value = file; show(viewer, data, source); }
  mark(viewer, lines);
  detail(viewer, data, lines);
}

function show(viewer, data, select) {
  const box = select.parentElement.querySelector(".code");
  if (select.classList.contains("source")) fill(box, data.files[select.value] ?? "", select.value);
  else fill(box, data.texts[data.steps[select.value].text]);
}

async function open(viewer) {
  const data = await unpack(viewer.dataset.blob);
  if (viewer.dataset.ready) return data;
  viewer.dataset.ready = "1";
  viewer.open = true;
  const [source, left, right] = viewer.querySelectorAll("select");
  for (const file of Object.keys(data.files)) source.append(new Option(file.split("/").slice(-2).join("/"), file));
  data.steps.forEach((step, k) => [left, right].forEach(s => s.append(new Option(`${step.name}${step.part ? ` (${step.part})` : ""}: ${step.kind}`, k))));
  right.value = String(Math.max(0, data.steps.findLastIndex(step => step.part === "" || step.part === "forward")));
  for (const select of [source, left, right]) {
    select.addEventListener("change", () => show(viewer, data, select));
    if (select.options.length) show(viewer, data, select);
  }
  return data;
}

for (const viewer of document.querySelectorAll("details.viewer")) viewer.addEventListener("toggle", () => { if (viewer.open) open(viewer); });
document.addEventListener("click", event => {
  const element = event.target.closest("[data-lines]");
  const viewer = element?.closest("section")?.querySelector("details.viewer");
  if (viewer && linesOf(element).length) choose(viewer, linesOf(element));
});
