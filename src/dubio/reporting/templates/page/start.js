// Connect the controls to the state, and start.
function options(select, items, value) {
  select.replaceChildren(...items.map(([key, text]) => page.h("option", { value: key }, text)));
  select.value = value;
}

function fillControls() {
  const task = page.task(), { split, metric, method, hidden, filter } = page.state, kinds = { id: "in-domain", shift: "shifted", ood: "OOD" };
  document.getElementById("choose-task").value = page.state.task;
  options(document.getElementById("choose-split"), [["", "all"], ...task.splits.map((item) => [item.name, `${item.name} (${kinds[item.kind]})`])], split);
  document.getElementById("choose-split").closest("label").hidden = task.splits.length < 2;
  options(document.getElementById("choose-metric"), [["", "default"], ...task.metrics.map((item) => [item.name, item.title])], metric);
  options(document.getElementById("choose-method"), [["", "none"], ...data.methods.map((item) => [item.title, item.title])], method);
  if (document.activeElement !== document.getElementById("filter")) { document.getElementById("filter").value = filter; }
  document.querySelectorAll("#method-list input").forEach((box) => { box.checked = !hidden.has(box.value); });
  document.getElementById("method-count").textContent = hidden.size ? `(${data.methods.length - hidden.size} of ${data.methods.length})` : `(${data.methods.length})`;
}

function applyBlocks({ task, split }) {
  document.querySelectorAll("section.chapter[data-task]").forEach((section) => { section.hidden = section.dataset.task !== task; });
  document.querySelectorAll("section.chapter[data-task] [data-split]").forEach((block) => { block.hidden = !isOfSplit(block.dataset.split, split); });
  applyColumns(split);
}

function connectControls() {
  const on = (id, event, act) => document.getElementById(id).addEventListener(event, act);
  document.getElementById("controls").hidden = false;
  document.getElementById("choose-task").closest("label").hidden = data.tasks.length < 2;  // no choice, no control
  document.querySelector(".controls .methods").hidden = data.methods.length < 2;
  on("choose-task", "change", (event) => page.set({ task: event.target.value, split: "", metric: "", system: "", compare: "", referred: "", stop: "" }));
  on("choose-split", "change", (event) => page.set({ split: event.target.value }));
  on("choose-metric", "change", (event) => page.set({ metric: event.target.value }));
  on("choose-method", "change", (event) => page.set({ method: event.target.value }));
  on("show-all", "click", () => page.set({ hidden: new Set() }));
  on("filter", "input", (event) => { page.remember({ filter: event.target.value }); applyTables(page.state); });
  on("controls", "submit", (event) => event.preventDefault());
  document.querySelectorAll("#method-list input").forEach((box) => box.addEventListener("change", () => {
    const hidden = new Set(page.state.hidden);
    if (box.checked) { hidden.delete(box.value); } else { hidden.add(box.value); }
    page.set({ hidden });
  }));
  on("print", "click", () => {
    openAll();
    document.documentElement.classList.add("printing");
    drawAll().then(() => { window.print(); document.documentElement.classList.remove("printing"); });
  });
  on("scheme", "click", () => {
    const dark = document.documentElement.dataset.scheme === "dark" || (!document.documentElement.dataset.scheme && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.scheme = dark ? "light" : "dark";
    showScheme();
  });
}

function showScheme() {
  const own = document.documentElement.dataset.scheme, button = document.getElementById("scheme");
  const dark = own ? own === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  button.setAttribute("aria-pressed", String(dark));
  button.textContent = dark ? "Light" : "Dark";
}

function openAll() {
  document.querySelectorAll("main details").forEach((details) => { details.open = true; });
}

function start() {
  document.documentElement.classList.add("js");
  page.read();
  sortTables();
  if (document.getElementById("controls")) {
    connectControls();
    page.subscribe(fillControls);
    page.subscribe(applyBlocks);
    showScheme();
  }
  page.subscribe(applyTables);
  page.subscribe(applyFigures);
  window.addEventListener("hashchange", () => {
    if (location.hash && !location.hash.includes("=")) { return; }  // a place on the page, no choice
    page.read(); page.listeners.forEach((listener) => listener(page.state));
  });
  window.addEventListener("beforeprint", openAll);
  document.querySelectorAll("[data-widget]").forEach((element) => {
    const own = data.widgets[element.dataset.widget];
    if (widgets[own.kind]) {
      widgets[own.kind](page, element, own);
      element.nextElementSibling.hidden = true;
    }
  });
  page.listeners.forEach((listener) => listener(page.state));
  if (Object.keys(data.figures).length) { watchFigures(); }
  document.documentElement.dataset.ready = "yes";
}

if ("DecompressionStream" in window) { unpack("page-data").then((text) => { page.load(JSON.parse(text)); start(); }); }
