"use strict";
(() => {
  const POLL = 5000, AHEAD = 8, MOST = 200;
  const RESERVED = "ufsb";
  const KEYS = [..."123456789", ..."acdeghijklmnopqrtvwxyz"].filter((key) => !RESERVED.includes(key));
  const at = (id) => document.getElementById(id);
  const state = { rows: [], classes: [], several: false, columns: [], skipped: [], labelled: [], chosen: new Set(), busy: false, asking: 0, shown: null };

  // --- the server ---------------------------------------------------------------------------------------------------

  async function ask(path, body) {
    const headers = {};
    const token = sessionStorage.getItem("dubio-token");
    if (token) headers.Authorization = `Bearer ${token}`;
    const options = { headers, cache: "no-store", credentials: "omit" };
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
      Object.assign(options, { method: "POST", body: JSON.stringify(body) });
    }
    let response;
    try {
      response = await fetch(path, options);
    } catch {
      throw new Error("The server cannot be reached. Nothing was labelled; it is tried again.");
    }
    const document_ = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
    if (response.ok) return document_;
    const fault = new Error(document_.error || `The server answered ${response.status}.`);
    fault.status = response.status;
    throw fault;
  }

  async function refresh(first) {
    state.asking += 1;
    try {
      const limit = Math.min(MOST, AHEAD + state.skipped.length);
      const queue = await ask(`queue?limit=${limit}`);
      Object.assign(state, { classes: queue.classes, several: queue.several, columns: queue.columns });
      const skipped = new Set(state.skipped);
      const fresh = queue.rows.filter((row) => !skipped.has(row.decision.id));
      // The row that is being looked at stays, whatever has come in meanwhile.
      const current = queue.rows.find((row) => row.decision.id === (first || state.shown));
      state.rows = current ? [current, ...fresh.filter((row) => row !== current)] : fresh;
      if (!state.rows.length && state.skipped.length && queue.rows.length) {
        state.skipped = [];
        say("These are the rows that you skipped.");
        state.rows = queue.rows;
      }
      progress(queue.labelled, queue.waiting);
      at("token").hidden = true;
      show();
    } catch (fault) {
      if (fault.status === 401) askForToken(); else say(fault.message, true);
    } finally {
      state.asking -= 1;
    }
    document.documentElement.dataset.ready = "";
  }

  async function send(id, label) {
    if (state.busy) return null;
    state.busy = true;
    try {
      const answer = await ask("label", { id, label });
      progress(answer.labelled, answer.waiting);
      return answer;
    } catch (fault) {
      say(fault.message, true);
      if (fault.status === 401) askForToken();
      return fault.status === 409 ? fault : null;
    } finally {
      state.busy = false;
    }
  }

  // --- what the expert does -----------------------------------------------------------------------------------------

  async function label(value) {
    const row = state.rows[0];
    if (!row) return;
    const answer = await send(row.decision.id, value);
    if (!answer) return;
    if (!(answer instanceof Error)) {
      state.labelled.push(row.decision.id);
      say(`${row.decision.id}: ${Array.isArray(value) ? value.join(", ") || "no label" : value}.`);
    }
    state.shown = null;
    state.rows.shift();
    await refresh();
  }

  async function undo() {
    const id = state.labelled[state.labelled.length - 1];
    if (!id || !(await send(id, null))) return;
    state.labelled.pop();
    say(`The label of ${id} is withdrawn.`);
    state.skipped = state.skipped.filter((other) => other !== id);
    await refresh(id);
  }

  function choose(name) {
    if (!state.several) return label(name);
    if (!state.chosen.delete(name)) state.chosen.add(name);
    return mark();
  }

  function save() {
    if (state.several) label(state.classes.filter((name) => state.chosen.has(name)));
  }

  async function skip() {
    if (!state.rows.length) return;
    state.skipped.push(state.rows[0].decision.id);
    state.shown = null;
    await refresh();
  }

  async function back() {
    const id = state.skipped.pop();
    if (id) await refresh(id);
  }

  // --- what the expert sees -----------------------------------------------------------------------------------------

  function element(name, text, properties) {
    const made = Object.assign(document.createElement(name), properties);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function say(text, bad) {
    at("status").textContent = text;
    at("status").classList.toggle("bad", Boolean(bad));
  }

  function progress(labelled, waiting) {
    at("bar").max = Math.max(1, labelled + waiting);
    at("bar").value = labelled;
    at("count").textContent = `${labelled} of ${labelled + waiting} labelled, ${waiting} waiting`;
    document.title = `(${waiting}) Queue – dubio`;
  }

  function show() {
    const row = state.rows[0];
    at("work").hidden = !row;
    at("empty").hidden = Boolean(row);
    at("again").hidden = Boolean(row) || !state.labelled.length;
    at("undo").disabled = !state.labelled.length;
    at("back").disabled = !state.skipped.length;
    if (!row || row.decision.id === state.shown) return;
    state.shown = row.decision.id;
    state.chosen = new Set();
    at("name").textContent = row.decision.id;
    at("row").replaceChildren(...contents(row.row));
    at("answer").textContent = row.decision.answer || "no label";
    at("reason").textContent = row.decision.reason;
    at("at").textContent = `Decided ${new Date(row.at).toLocaleString()}`;
    const shares = Object.entries(row.decision.probabilities).sort((one, other) => other[1] - one[1]);
    at("probabilities").tBodies[0].replaceChildren(...shares.slice(0, 10).map(([name, share]) => {
      const line = element("tr");
      line.append(element("th", name, { scope: "row" }), element("td", `${(100 * share).toFixed(1)} %`, { className: "number" }));
      return line;
    }));
    buttons();
    if (!at("filter").matches(":focus")) at("card").focus({ preventScroll: true });
  }

  function contents(row) {
    if (!row) return [element("p", "The content of this row is not kept here; look it up by its id.")];
    const kinds = Object.fromEntries(state.columns.map((column) => [column.name, column.kind]));
    const plain = [], cells = [];
    for (const [name, value] of Object.entries(row)) {
      // A row that is only shown has no columns: what begins like an image is one.
      const type = (kinds[name] || "image") === "image" ? picture(value) : null;
      if (type) plain.push(element("img", undefined, { src: `data:${type};base64,${value}`, alt: `Image of ${name}` }));
      else if (typeof value === "string" && (kinds[name] === "text" || value.length > 60)) plain.push(element("p", value, { className: "text" }));
      else cells.push([name, value]);
    }
    if (cells.length) {
      const table = element("table");
      table.append(element("caption", "Values"));
      const head = element("tr");
      head.append(element("th", "Column", { scope: "col" }), element("th", "Value", { scope: "col" }));
      table.createTHead().append(head);
      const body = table.createTBody();
      for (const [name, value] of cells) {
        const line = element("tr");
        line.append(element("th", name, { scope: "row" }), element("td", value === null ? "missing" : String(value)));
        body.append(line);
      }
      plain.push(table);
    }
    return plain;
  }

  function picture(value) {
    if (typeof value !== "string" || !/^[A-Za-z0-9+/]{60,}=*$/.test(value)) return null;
    return value.startsWith("iVBOR") ? "image/png" : value.startsWith("/9j/") ? "image/jpeg" : null;
  }

  function buttons() {
    const many = state.classes.length > KEYS.length;
    at("filter-row").hidden = !many && state.classes.length <= 12;
    at("save").hidden = !state.several;
    const wanted = at("filter").value.trim().toLowerCase();
    const shown = state.classes.map((name, index) => [name, KEYS[index]]).filter(([name]) => name.toLowerCase().includes(wanted));
    at("classes").replaceChildren(...shown.map(([name, key]) => {
      const button = element("button", undefined, { type: "button" });
      if (key) {
        button.append(element("kbd", key));
        button.setAttribute("aria-keyshortcuts", key);
      }
      button.append(name);
      button.dataset.name = name;
      button.addEventListener("click", () => choose(name));
      return button;
    }));
    mark();
  }

  function mark() {
    if (!state.several) return;
    for (const button of at("classes").children) button.setAttribute("aria-pressed", state.chosen.has(button.dataset.name));
  }

  function askForToken() {
    for (const id of ["work", "empty", "again"]) at(id).hidden = true;
    at("token").hidden = false;
    at("secret").value = "";
    at("secret").focus();
  }

  // --- keys and buttons ---------------------------------------------------------------------------------------------

  function press(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || !at("token").hidden) return;
    if (event.target.id === "filter") {
      const first = at("classes").firstElementChild;
      if (event.key === "Escape") { at("filter").value = ""; buttons(); at("card").focus(); }
      if (event.key === "Enter" && first && at("filter").value) { event.preventDefault(); at("filter").value = ""; choose(first.dataset.name); buttons(); at("card").focus(); }
      return;
    }
    if (event.key === "u") return undo();
    if (at("work").hidden) return;
    const index = KEYS.indexOf(event.key);
    if (index >= 0 && index < state.classes.length) return choose(state.classes[index]);
    if (event.key === "s") return skip();
    if (event.key === "b") return back();
    if (event.key === "f" && !at("filter-row").hidden) { event.preventDefault(); at("filter").focus(); }
    if (event.key === "Enter" && event.target.tagName !== "BUTTON") save();
  }

  document.addEventListener("keydown", press);
  at("filter").addEventListener("input", buttons);
  at("save").addEventListener("click", save);
  at("skip").addEventListener("click", skip);
  at("back").addEventListener("click", back);
  at("undo").addEventListener("click", undo);
  at("undo-empty").addEventListener("click", undo);
  at("token").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("dubio-token", at("secret").value.trim());
    say("");
    refresh();
  });
  // A late answer to a second question would empty the field in which the token is being typed.
  setInterval(() => { if (!document.hidden && !state.busy && !state.asking && at("token").hidden) refresh(); }, POLL);
  refresh();
})();
