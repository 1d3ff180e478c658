// The referral cockpit: a slider over the operating points of a system, its stops with a guarantee, and what they cost.
widgets.cockpit = function (page, element, cockpit) {
  const h = page.h, percent = (value, digits) => (100 * value).toFixed(digits === undefined ? 1 : digits) + " %";
  const systems = cockpit.systems, state = { index: 0, other: -1, at: 0, stop: null };
  const byTitle = (title) => systems.findIndex((system) => system.title === title);
  const id = "cockpit-" + Math.abs([...cockpit.task].reduce((sum, letter) => (31 * sum + letter.codePointAt(0)) | 0, 7));
  const examples = Object.values(page.data.widgets).find((widget) => widget.kind === "examples" && widget.task === cockpit.task);

  const choose = (label, items, act) => {
    const select = h("select", { change: (event) => act(Number(event.target.value)) }, items.map(([value, text]) => h("option", { value }, text)));
    return [h("label", {}, label, " ", select), select];
  };
  const [systemLabel, systemSelect] = choose("System", systems.map((system, index) => [index, system.title]), (index) => act(() => change(index)));
  const [otherLabel, otherSelect] = choose("Compare with", [[-1, "none"], ...systems.map((system, index) => [index, system.title])], (index) => act(() => { state.other = index; }));
  const slider = h("input", { type: "range", min: 0, step: 1, id: id + "-slider", "aria-describedby": id + "-status", input: (event) => act(() => Object.assign(state, { at: Number(event.target.value), stop: null })) });
  const referred = h("output", { for: id + "-slider" });
  const price = (label, value) => {
    const input = h("input", { type: "number", min: 0, step: "any", value, class: "price", input: () => show() });
    return [h("label", {}, label, " ", input), () => (Number.isFinite(input.valueAsNumber) && input.valueAsNumber >= 0 ? input.valueAsNumber : 0)];
  };
  const [mistakeLabel, mistake] = price("Price of a mistake", 10);
  const [referralLabel, referral] = price("of a referral", 1);
  const cheapest = h("button", { type: "button", click: () => act(() => Object.assign(state, { at: cheapestPoint(), stop: null })) }, "Cheapest point");
  const stops = h("div", { class: "stops", role: "group", "aria-label": "Stops with a guarantee" });
  const status = h("p", { class: "status", id: id + "-status", "aria-live": "polite" });
  const readings = h("div", { class: "readings", tabindex: "0", role: "region", "aria-label": "Numbers at this operating point" });
  const subgroups = h("div", { class: "subgroups" });
  const border = h("div", { class: "border" });

  const system = () => systems[state.index];
  const points = (own) => own.points;
  const coverage = () => points(system()).retained[state.at] / points(system()).rows;
  function nearest(own, share) {
    const wanted = share * points(own).rows, distances = points(own).retained.map((count) => Math.abs(count - wanted));
    return distances.indexOf(Math.min(...distances));
  }
  function change(index) { Object.assign(state, { index, at: nearest(systems[index], coverage()), stop: null }); }
  // What the reader does here is kept in the address too, as long as this task is shown.
  let remembered = "";
  const asWords = () => ({
    system: system().title,
    compare: state.other < 0 ? "" : systems[state.other].title,
    referred: state.stop === null ? (100 * (1 - coverage())).toFixed(2) : "",
    stop: state.stop === null ? "" : String(system().stops[state.stop].target),
  });
  function act(doing) {
    doing();
    remembered = JSON.stringify(asWords());
    page.remember(asWords());
    show();
  }
  function recall({ system: title, compare, referred: share, stop }) {
    state.index = Math.max(byTitle(title), 0);
    state.other = byTitle(compare);
    state.stop = stop === "" ? null : system().stops.findIndex((own) => own.guaranteed && String(own.target) === stop);
    if (state.stop === -1) { state.stop = null; }
    state.at = state.stop !== null ? stopPoint(system(), state.stop) : nearest(system(), share === "" ? 0.8 : 1 - Number(share) / 100);
  }
  function cost(own, at) {
    const { errors, retained, rows } = points(own);
    return 1000 * (errors[at] * mistake() + (rows - retained[at]) * referral()) / rows;
  }
  function cheapestPoint() {
    const costs = points(system()).retained.map((count, at) => cost(system(), at));
    return costs.indexOf(Math.min(...costs));
  }
  function interval(columns, at) {
    const value = columns.value[at];
    return value === null ? "undefined" : percent(value) + " [" + percent(columns.low[at]) + ", " + percent(columns.high[at]) + "]";
  }
  function threshold(own, at) {
    const { probability, decimals, threshold: limits } = points(own);
    if (limits[at] === null) { return "every row is referred"; }
    return probability[at] === null ? "uncertainty at most " + limits[at] : "confidence of at least " + percent(probability[at], decimals[at]);
  }
  function lines(own, at) {
    const { retained, rows, errors, risk, binary, grouped } = points(own), list = [
      ["Referred", percent(1 - retained[at] / rows) + " (" + (rows - retained[at]).toLocaleString("en") + " of " + rows.toLocaleString("en") + ")"],
      ["Error of the retained", interval(risk, at) + (grouped ? ", mean over groups" : "") + " (" + errors[at] + " of " + retained[at].toLocaleString("en") + (grouped ? " rows)" : ")")],
      ["Retained", threshold(own, at)],
    ];
    if (binary) {
      list.push(["Sensitivity (" + binary.positive + ")", interval(binary.sensitivity, at)], ["Specificity", interval(binary.specificity, at)]);
    }
    list.push(["Cost of 1,000 examples", cost(own, at).toLocaleString("en", { maximumFractionDigits: 1 })]);
    return list;
  }
  function table(pairs) {
    const heads = pairs.map(([own]) => h("th", { scope: "col" }, own.title)), rows = lines(...pairs[0]);
    const columns = pairs.map(([own, at]) => new Map(lines(own, at)));
    return h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "At this operating point"), heads)),
      h("tbody", {}, rows.map(([name]) => h("tr", {}, h("th", { scope: "row" }, name), columns.map((column) => h("td", {}, column.get(name) || "–"))))));
  }
  function showStops() {
    const own = system();
    stops.replaceChildren(...own.stops.map((stop, index) => {
      const text = stop.guaranteed ? "below " + percent(stop.target, stop.target < 0.01 ? 2 : 0) + ": retains " + percent(stop.coverage, 0) : "below " + percent(stop.target, 0) + ": not possible";
      return h("button", { type: "button", disabled: !stop.guaranteed, "aria-pressed": String(state.stop === index), title: stop.refusal || stop.guarantee,
        click: () => act(() => Object.assign(state, { stop: index, at: stopPoint(own, index) })) }, text);
    }));
  }
  function stopPlace(own, index) { return own.stops.slice(0, index + 1).filter((stop) => stop.file !== null && stop.file !== undefined).length - 1; }
  function stopPoint(own, index) { return points(own).stops[stopPlace(own, index)]; }
  function showStatus() {
    const own = system(), stop = state.stop === null ? null : own.stops[state.stop];
    status.className = stop ? "status guaranteed" : "status estimate";
    if (!stop) {
      status.replaceChildren(h("b", {}, "No guarantee. "), "An estimate from the test set: a threshold that is picked by its own numbers will do worse on new data. ", own.stops.some((item) => item.guaranteed) ? "The stops above have a guarantee." : own.stops.length ? "No stop of this system has one." : cockpit.sentence);
      return;
    }
    const files = own.files && own.files.files[stop.file];
    const save = files
      ? h("button", { type: "button", class: "download", click: () => page.download(stop.file, "application/json", files[0] + own.files.uncertainties + files[1]) }, "Download this policy")
      : h("code", {}, cockpit.command);
    status.replaceChildren(h("b", {}, "Guaranteed. "), stop.guarantee, " ", save);
  }
  // At a stop the intervals of all subgroups hold at once; between stops each is on its own, and the reader's choice.
  function showSubgroups(own, at) {
    const columns = Object.entries(points(own).subgroups), stop = state.stop === null ? -1 : stopPlace(own, state.stop);
    const note = cockpit.subgroup_notes[stop < 0 ? "between" : "at_stops"];
    const error = (group) => (stop < 0 ? interval(group.risk, at) : interval(group.at_stops, stop)) + " (" + group.errors[at] + " of " + group.retained[at] + ")";
    const unfolded = new Set([...subgroups.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
    subgroups.replaceChildren(...columns.map(([column, values]) => h("details", { open: unfolded.has("By " + column) }, h("summary", {}, "By " + column), h("p", { class: "small" }, note), h("table", {},
      h("thead", {}, h("tr", {}, [column, "rows", "referred", "error of the retained"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, Object.entries(values).map(([value, group]) => h("tr", { class: group.underpowered ? "unranked" : "" }, h("th", { scope: "row" }, value + (group.underpowered ? " (few)" : "")),
        h("td", {}, group.rows.toLocaleString("en")), h("td", {}, percent(1 - group.retained[at] / group.rows)),
        h("td", {}, group.retained[at] ? error(group) : "–"))))))));
  }
  // The two examples on either side of the threshold, more of one side where the other has fewer.
  function showBorder(own, at) {
    const limit = points(own).threshold[at];
    if (!examples || limit === null) { border.replaceChildren(); return; }
    const method = examples.methods.indexOf(own.name), quantity = examples.quantities.findIndex((entry) => entry.name === points(own).quantity);
    const uncertainty = (item) => (item.uncertainty[method] || [])[quantity];
    const items = examples.items.filter((item) => examples.splits[item.split].name === cockpit.split && typeof uncertainty(item) === "number");
    // both sides with four digits, as examples have them: rounding keeps their order
    const near = items.map((item) => [uncertainty(item) - Number(limit.toPrecision(4)), item]).sort((a, b) => Math.abs(a[0]) - Math.abs(b[0]));
    const sides = [near.filter(([distance]) => distance <= 0), near.filter(([distance]) => distance > 0)];
    const counts = sides.map((side, index) => Math.max(2, 4 - sides[1 - index].length));
    const shown = sides.flatMap((side, index) => side.slice(0, counts[index]).sort((a, b) => a[0] - b[0]));
    border.replaceChildren(h("h4", {}, "Examples at the border"), h("ul", {}, shown.map(([distance, item]) => borderItem(distance > 0, item, method))));
  }
  function borderItem(isReferred, item, method) {
    const list = (label) => [].concat(label).filter((index) => index >= 0).map((index) => examples.classes[index]).join(", ") || "none";
    const right = list(item.label) === list(item.answers[method]), name = item.id || "row " + item.row;
    const shown = item.image ? h("img", { src: item.image, alt: "image " + name }) : h("span", { class: "words", dir: "auto" }, item.text || (item.cells || []).slice(0, 3).map((cell) => cell.join(" ")).join("; ") || name);
    return h("li", { title: name }, h("span", { class: isReferred ? "badge referred" : "badge retained" }, isReferred ? "referred" : "retained"), shown,
      h("span", { class: "said" }, h("b", { dir: "auto" }, list(item.answers[method])), " " + percent(item.confidence[method]), h("br"),
        right ? "correct" : h("span", { dir: "auto" }, "label: " + list(item.label))));
  }
  function show() {
    const own = system(), other = state.other >= 0 && state.other !== state.index ? systems[state.other] : null;
    systemSelect.value = String(state.index);
    otherSelect.value = String(state.other);
    [systemSelect, otherSelect].forEach((select) => [...select.options].forEach((option) => { option.hidden = page.state.hidden.has(option.text); }));
    slider.max = points(own).retained.length - 1;
    slider.value = state.at;
    referred.textContent = percent(1 - coverage()) + " referred";
    slider.setAttribute("aria-valuetext", referred.textContent);
    showStops();
    showStatus();
    const otherAt = other ? nearest(other, coverage()) : -1;
    readings.replaceChildren(table([[own, state.at], ...(other ? [[other, otherAt]] : [])]));
    showSubgroups(own, state.at);
    showBorder(own, state.at);
    page.setSignals(cockpit.task, { coverage: coverage(), system: own.title, at: state.at, other: other ? other.title : "", other_at: otherAt });
    page.setThreshold(cockpit.task, own.name, { quantity: points(own).quantity, value: points(own).threshold[state.at] });
  }

  [systemLabel, otherLabel].forEach((label) => { label.hidden = systems.length < 2; });
  element.replaceChildren(
    h("div", { class: "panel" },
      h("div", { class: "row" }, systemLabel, otherLabel, mistakeLabel, referralLabel, cheapest),
      h("div", { class: "slide" }, h("label", { for: id + "-slider" }, "Refer all"), slider, h("span", {}, "Retain all"), referred),
      h("div", { class: "row" }, systems.some((own) => own.stops.length) ? h("span", {}, "Guaranteed stops: error") : "", stops),
      status),
    h("div", { class: "side" }, readings, subgroups, border),
    h("p", { class: "small note-of-guarantee" }, cockpit.sentence),
  );
  let followed = "";
  page.subscribe((words) => {
    const { method, hidden } = words, index = byTitle(method), changed = method !== followed;
    followed = method;  // a system chosen here stays, until another method is highlighted
    const own = JSON.stringify(Object.fromEntries(["system", "compare", "referred", "stop"].map((name) => [name, words[name]])));
    if (words.task === cockpit.task && words.system && own !== remembered) { remembered = own; recall(words); }
    else if (changed && index >= 0 && index !== state.index) { change(index); }
    else if (hidden.has(system().title) && systems.some((item) => !hidden.has(item.title))) { change(systems.findIndex((item) => !hidden.has(item.title))); }
    else { return; }
    show();
  });
  state.index = Math.max(0, systems.findIndex((item) => item.name === cockpit.best));
  state.at = nearest(system(), 0.8);
  show();
};
