// The state of the page: one choice of task, test set, metric and methods, kept in the address behind "#".
let data = null;
const widgets = {};

// Document and library are deflated and in base85 (four bytes in five letters): unpacked by the browser, without a library.
const BASE85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%.()*+-;,=:?@^_`{|}~";
function bytes85(text) {
  const digits = new Uint8Array(128);
  [...BASE85].forEach((letter, value) => { digits[letter.charCodeAt(0)] = value; });
  const filled = text + "~".repeat((5 - (text.length % 5)) % 5);
  const view = new DataView(new ArrayBuffer((filled.length / 5) * 4));
  for (let start = 0, value = 0; start < filled.length; start += 5, value = 0) {
    for (let next = start; next < start + 5; next += 1) value = value * 85 + digits[filled.charCodeAt(next)];
    view.setUint32((start / 5) * 4, value);
  }
  return new Uint8Array(view.buffer, 0, Math.floor((text.length * 4) / 5));
}
async function unpack(id) {
  const bytes = bytes85(document.getElementById(id).textContent);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

const page = {
  data: null,
  methods: {},
  state: { task: "", split: "", metric: "", hidden: new Set(), method: "", filter: "", system: "", compare: "", referred: "", stop: "" },
  listeners: [],
  thresholds: {},
  signals: {},
  subscribe(listener) { page.listeners.push(listener); },
  set(changes) {
    Object.assign(page.state, changes);
    page.write();
    page.listeners.forEach((listener) => listener(page.state));
  },
  task() { return (data.tasks || []).find((task) => task.key === page.state.task); },
  title(name) { return page.methods[name] ? page.methods[name].title : name; },
  threshold(task, method) { return page.thresholds[task + "\n" + method] || null; },
  setThreshold(task, method, threshold) {
    page.thresholds[task + "\n" + method] = threshold;
    page.thresholdListeners.forEach((listener) => listener(task));
  },
  thresholdListeners: [],
  // Parameters of the figures of one task, such as the operating point.
  setSignals(task, values) {
    page.signals[task] = values;
    applyFigures();
  },
  // Keep a choice in the address without telling anyone: whoever calls this has already followed it.
  remember(words) {
    Object.assign(page.state, words);
    page.write();
  },
  // Make an element: attributes as they are, functions as listeners, other children as text.
  h(tag, attributes, ...children) {
    const element = document.createElement(tag);
    Object.entries(attributes || {}).forEach(([name, value]) => {
      if (typeof value === "function") { element.addEventListener(name, value); }
      else if (value === true) { element.setAttribute(name, ""); }
      else if (value !== false && value !== null && value !== undefined) { element.setAttribute(name, value); }
    });
    children.flat().forEach((child) => {
      if (child !== null && child !== undefined && child !== "") {
        element.append(child instanceof Node ? child : String(child));
      }
    });
    return element;
  },
  write() {
    const { task, split, metric, hidden, method, filter, system, compare, referred, stop } = page.state, words = new URLSearchParams();
    if (task && task !== (data.tasks[0] || {}).key) { words.set("task", task); }
    if (split) { words.set("split", split); }
    if (metric) { words.set("metric", metric); }
    Object.entries({ method, filter, system, compare, referred, stop }).forEach(([name, value]) => { if (value) { words.set(name, value); } });
    hidden.forEach((title) => words.append("hide", title));
    const text = words.toString();
    // an address that cannot be changed (some viewers of local files) costs the link, not the page
    try { history.replaceState(null, "", text ? "#" + text : location.pathname + location.search); } catch (fault) { /* nothing */ }
  },
  load(document) {
    data = page.data = document;
    page.methods = Object.fromEntries((data.methods || []).map((method) => [method.name, method]));
  },
  read() {
    const words = new URLSearchParams(location.hash.slice(1)), tasks = (data.tasks || []).map((task) => task.key);
    const titles = (data.methods || []).map((method) => method.title);
    const task = tasks.includes(words.get("task")) ? words.get("task") : tasks[0] || "";
    const own = (data.tasks || []).find((item) => item.key === task) || { splits: [], metrics: [] };
    const title = (key) => (titles.includes(words.get(key)) ? words.get(key) : "");
    const among = (list, word) => (list.some((item) => item.name === word) ? word : "");
    Object.assign(page.state, {
      task,
      split: among(own.splits, words.get("split")),
      metric: among(own.metrics, words.get("metric")),
      method: title("method"),
      filter: words.get("filter") || "",
      system: title("system"),
      compare: title("compare"),
      referred: /^\d{1,3}(\.\d+)?$/.test(words.get("referred")) ? words.get("referred") : "",
      stop: words.get("stop") || "",
      hidden: new Set(words.getAll("hide").filter((title) => titles.includes(title))),
    });
  },
  download(name, type, text) {
    const address = URL.createObjectURL(new Blob([text], { type }));
    const link = page.h("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  },
};
