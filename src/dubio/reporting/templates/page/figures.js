// Figures: drawn when they come into view, from the page's own data; no address is ever loaded.
const drawn = new Map(), NARROW = 480;
async function refuse() { throw new Error("the page loads nothing and links to nothing"); }
const refusing = { load: refuse, sanitize: refuse, http: refuse, file: refuse };

// Vega is added to the document when the first figure is drawn; the page's policy names the hash of this very text.
let library = null;
function loadLibrary() {
  library = library || unpack("page-library").then((text) => { document.head.append(page.h("script", {}, text)); });
  return library;
}

function figureRows(columns) {
  const plain = Object.entries(columns).map(([name, column]) => [name, Array.isArray(column) ? column : column.rows.map((index) => column.values[index])]);
  const count = plain.length ? plain[0][1].length : 0;
  return Array.from({ length: count }, (nothing, row) => Object.fromEntries(plain.map(([name, column]) => [name, column[row]])));
}

function figureSpec(key) {
  const figure = data.figures[key];
  const datasets = Object.fromEntries(Object.entries(figure.data).map(([name, rows]) => [name, figureRows(rows)]));
  const spec = data.specs[figure.spec];
  return { ...spec, config: { ...data.config, ...spec.config }, datasets };
}

// The metric of a figure, where its test set has values of it; else the first one that has.
function metricOn(spec, metric, split) {
  const rows = Object.values(spec.datasets).flat().filter((row) => row.split === split && row.metric !== undefined);
  return rows.length && !rows.some((row) => row.metric === metric) ? rows[0].metric : metric;
}

// What a figure of the chosen metric shows, in the words of the page.
function heading(key, { metric, split }) {
  const task = data.tasks.find((item) => item.key === key) || { metrics: [], splits: [] }, inside = task.splits.find(({ kind }) => kind === "id");
  const { title = metric, better } = task.metrics.find(({ name }) => name === metric) || {}, { name, kind } = task.splits.find((item) => item.name === split) || {};
  const place = { id: "in-domain test set", shift: "shifted test set", ood: "OOD test set" }[kind] || "test set " + split;
  return title + ", " + place + (!inside || name === inside.name ? "" : " “" + name + "”") + (better ? "; " + better + " is better" : "");
}

function signals(spec, task) {
  const { hidden, method, metric, split } = page.state, params = spec.params || [];
  const first = Object.fromEntries(params.map(({ name, value }) => [name, value])), titles = data.methods.map((item) => item.title);
  const own = { split: split || first.split, metric: metricOn(spec, metric || first.metric, split || first.split) };
  const values = {
    shown: hidden.size ? titles.filter((title) => !hidden.has(title)) : null,
    highlighted: method,
    ...own,
    heading: "heading" in first ? heading(task, own) : undefined,
    ...page.signals[task],
  };
  return Object.entries(values).filter(([name, value]) => name in first && value !== undefined);
}

function drawFigure(figure) {
  const key = figure.dataset.figure;
  if (!drawn.has(key)) { drawn.set(key, loadLibrary().then(() => embed(figure, key))); }
  return drawn.get(key);
}

async function embed(figure, key) {
  const canvas = figure.querySelector(".canvas"), full = figureSpec(key);
  // on a narrow screen panels and the entries of legends stand one below the other
  const spec = canvas.clientWidth < NARROW ? JSON.parse(JSON.stringify(full, (name, value) => (name === "columns" && typeof value === "number" ? 1 : value))) : full;
  const task = (figure.closest("[data-task]") || { dataset: {} }).dataset.task, now = Object.fromEntries(signals(spec, task));
  const params = (spec.params || []).map((param) => (param.name in now ? { ...param, value: now[param.name] } : param));
  const options = { ast: true, renderer: "svg", actions: false, loader: refusing, tooltip: { theme: "custom" } };
  const { view } = await vegaEmbed(canvas, { ...spec, ...(params.length ? { params } : {}) }, options);
  canvas.querySelector("svg").setAttribute("aria-hidden", "true");  // the canvas is one image with one description
  view.addEventListener("click", (event, item) => {
    if (item && item.datum && typeof item.datum.method === "string") { highlight(item.datum.method); }
  });
  addLinks(figure, key, view);
  return { view, spec, task };
}

// The rule of core/csv_files.py: no formula in a spreadsheet, also behind blanks and invisible characters.
const FORMULA = /^(?:['\t\r\n]|[\s"\x00-\x1f\x7f\u200b-\u200f\u2060\ufeff]*[=+@\-＝＋－＠])/;

function csvCell(value) {
  let text = value === null || value === undefined ? "" : String(value);
  if (typeof value === "string" && FORMULA.test(text)) { text = "'" + text; }
  return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}

function addLinks(figure, key, view) {
  const { name, data: tables } = data.figures[key], rows = Object.values(tables).flatMap(figureRows);
  const fields = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const csv = () => [fields, ...rows.map((row) => fields.map((field) => row[field]))].map((row) => row.map(csvCell).join(",")).join("\n") + "\n";
  const link = (label, act) => page.h("button", { type: "button", class: "link", click: act }, label);
  figure.querySelector(".links").replaceChildren(
    link("data as CSV", () => page.download(name + ".csv", "text/csv", csv())),
    link("as JSON", () => page.download(name + ".json", "application/json", JSON.stringify(rows))),
    link("figure as SVG", () => view.toSVG().then((text) => page.download(name + ".svg", "image/svg+xml", text))),
  );
}

function applyFigures() {
  drawn.forEach(async (figure) => {
    const { view, spec, task } = await figure;
    const changed = signals(spec, task).filter(([name, value]) => JSON.stringify(view.signal(name)) !== JSON.stringify(value));
    changed.forEach(([name, value]) => view.signal(name, value));
    if (changed.length) { await view.runAsync(); }  // a slider moves one figure, not all
  });
}

function watchFigures() {
  const observer = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (entry.isIntersecting) { observer.unobserve(entry.target); drawFigure(entry.target); }
  }), { rootMargin: "400px" });
  document.querySelectorAll("figure[data-figure]").forEach((figure) => observer.observe(figure));
}

async function drawAll() {
  const figures = [...document.querySelectorAll("figure[data-figure]")];
  for (const figure of figures.filter((one) => one.offsetParent)) { await drawFigure(figure); }  // a hidden one has no width
}
