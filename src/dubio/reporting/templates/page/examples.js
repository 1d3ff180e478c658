/* Examples: cards of test examples with label, answer, confidence and doubts; filters, search and paging.

   The data is that of reporting/sections/examples.py: lists per example follow the order of data.methods and
   data.quantities. Texts of users enter the page as text nodes alone. */
widgets.examples = function (page, element, data) {
  "use strict";
  const PER_PAGE = 12;
  const h = page.h;
  const noun = (page.data && page.data.noun) || "method";
  const SHOWN = [
    ["confident wrong", "Confident and incorrect"],
    ["uncertain wrong", "Uncertain and incorrect"],
    ["uncertain right", "Uncertain and correct"],
    ["confident right", "Confident and correct"],
    ["ood", "Most certain OOD or shifted"],
    ["disagree", `Two ${noun}s disagree`],
    ["border", "At the border of referral"],
    ["all", "All examples"],
  ];
  const TAGS = {
    "confident wrong": "among the most confident errors",
    "uncertain wrong": "among the most uncertain errors",
    "uncertain right": "among the most uncertain correct ones",
    "confident right": "among the most confident correct ones",
    "most certain OOD": "among the most certain OOD or shifted ones",
  };
  const UNCERTAIN_FIRST = new Set(["uncertain wrong", "uncertain right", "all"]);
  const quantityIndex = Object.fromEntries(data.quantities.map((quantity, index) => [quantity.name, index]));
  const choice = { split: 0, method: data.best, second: "", show: "confident wrong", search: "", quantity: "", order: "", pages: 1 };

  /* --- values of an example --------------------------------------------------------------------------------------- */

  const title = (name) => (page.methods[name] || { title: name }).title;
  const asList = (label) => (label === null || label === undefined || label === -1 ? [] : [].concat(label));
  const names = (label) => asList(label).map((index) => data.classes[index]).join(", ");
  const labelled = (item) => item.label !== -1;
  const same = (one, other) => {
    const [a, b] = [asList(one), asList(other)];
    return a.length === b.length && a.every((index, k) => index === b[k]);
  };
  const answerOf = (item, method) => item.answers[data.methods.indexOf(method)];
  const answered = (item, method) => answerOf(item, method) !== null && answerOf(item, method) !== undefined;
  const isRight = (item, method) => same(item.label, answerOf(item, method));
  const uncertainty = (item, method, quantity) => {
    const values = item.uncertainty[data.methods.indexOf(method)];
    const value = values ? values[quantityIndex[quantity]] : null;
    return typeof value === "number" ? value : null;
  };

  /* Both sides have four digits: rounding keeps their order, so that every retained example is shown as retained. */
  const thresholdOf = (method) => {
    const threshold = page.threshold(data.task, method);
    if (!threshold || !(threshold.quantity in quantityIndex)) return null;
    const value = threshold.value === null ? -Infinity : Number(threshold.value.toPrecision(4));  // null: all are referred
    return { quantity: threshold.quantity, value };
  };
  const isRetained = (item, method) => {
    const threshold = thresholdOf(method);
    const value = threshold && uncertainty(item, method, threshold.quantity);
    return value === null ? null : value <= threshold.value;
  };

  /* --- which examples, in which order ----------------------------------------------------------------------------- */

  const FILTERS = {
    "confident wrong": (item) => labelled(item) && !isRight(item, choice.method),
    "uncertain wrong": (item) => labelled(item) && !isRight(item, choice.method),
    "uncertain right": (item) => labelled(item) && isRight(item, choice.method),
    "confident right": (item) => labelled(item) && isRight(item, choice.method),
    ood: (item) => Boolean(item.ood),
    disagree: (item) => answered(item, choice.second) && !same(answerOf(item, choice.method), answerOf(item, choice.second)),
    border: (item) => isRetained(item, choice.method) !== null,
    all: () => true,
  };
  const words = (item) =>
    [item.text || "", item.id || "", `row ${item.row}`, names(item.label), names(answerOf(item, choice.method))]
      .concat((item.cells || []).flat())
      .join("\n")
      .toLocaleLowerCase();
  const matching = () => {
    const search = choice.search.trim().toLocaleLowerCase();
    return data.items.filter(
      (item) =>
        item.split === choice.split &&
        answered(item, choice.method) &&
        FILTERS[choice.show](item) &&
        (!search || words(item).includes(search)),
    );
  };
  const sortKey = (item) => {
    const threshold = choice.show === "border" ? thresholdOf(choice.method) : null;
    if (threshold) return Math.abs(uncertainty(item, choice.method, threshold.quantity) - threshold.value);
    const value = uncertainty(item, choice.method, choice.quantity);
    const sign = choice.order === "uncertain" ? -1 : 1;
    return value === null ? Infinity : sign * value;
  };
  const sorted = (items) => {
    const keys = new Map(items.map((item) => [item, sortKey(item)]));
    return items.slice().sort((one, other) => (keys.get(one) === keys.get(other) ? one.row - other.row : keys.get(one) < keys.get(other) ? -1 : 1));
  };

  /* --- controls --------------------------------------------------------------------------------------------------- */

  const number = (widgets.examples.count = (widgets.examples.count || 0) + 1);
  const control = (name, label, input) => {
    input.id = `examples-${number}-${name}`;
    return h("div", { class: "examples-control" }, h("label", { for: input.id }, label), input);
  };
  const select = (name, label, change) => {
    const input = h("select", {});
    input.addEventListener("change", () => change(input.value));
    return { input, field: control(name, label, input) };
  };
  const fill = (input, options, value) => {
    input.replaceChildren(...options.map(([key, text]) => h("option", { value: key }, text)));
    input.value = value;
  };
  const change = (changes) => {
    Object.assign(choice, { pages: 1 }, changes);
    draw();
  };
  const split = select("split", "Test set", (value) => {
    change({ split: Number(value) });
    page.set({ split: data.splits[choice.split].name });
  });
  const method = select("method", noun[0].toUpperCase() + noun.slice(1), (value) => {
    change({ method: value, quantity: "" });
    page.set({ method: title(value) });
  });
  const second = select("second", "Compared with", (value) => change({ second: value }));
  const show = select("show", "Show", (value) => change({ show: value, order: UNCERTAIN_FIRST.has(value) ? "uncertain" : "certain" }));
  const quantity = select("quantity", "Sort by", (value) => change({ quantity: value }));
  const order = select("order", "Order", (value) => change({ order: value }));
  const search = h("input", { type: "search", autocomplete: "off", placeholder: "text, id or class" });
  search.addEventListener("input", () => change({ search: search.value }));
  const fields = [split, method, show, second, quantity, order].map((control) => control.field).concat(control("search", "Search", search));
  const status = h("p", { class: "examples-status", role: "status", "aria-live": "polite" });
  const cards = h("ul", { class: "examples-cards" });
  const more = h("button", { type: "button", class: "examples-more" }, "Show more");
  more.addEventListener("click", () => {
    const first = cards.children.length;
    choice.pages += 1;
    draw();
    if (cards.children[first]) cards.children[first].focus();
  });

  /* --- cards ------------------------------------------------------------------------------------------------------ */

  const digits = (value) => (value === null || value === undefined ? "–" : value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3))));
  const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`);
  const badge = (kind, text) => h("span", { class: `examples-badge examples-${kind}` }, text);
  const nameOf = (item) => item.id || `row ${item.row}`;

  function media(item) {
    if (item.kind === "image") return h("img", { src: item.image, alt: `image ${nameOf(item)}`, class: "examples-image" });
    if (item.kind === "text") return h("blockquote", { class: "examples-text", dir: "auto" }, item.text || "(empty text)");
    const rows = item.cells.map(([name, value]) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, name), h("td", { dir: "auto" }, value)));
    return h("div", { class: "examples-cells", tabindex: "0", role: "group", "aria-label": `columns of ${nameOf(item)}` }, h("table", {}, h("tbody", {}, ...rows)));
  }

  function badges(item) {
    const list = [];
    if (labelled(item)) list.push(isRight(item, choice.method) ? badge("right", "correct") : badge("wrong", "incorrect"));
    if (item.ood) list.push(badge("ood", data.splits[item.split].kind === "shift" ? "shifted" : "OOD"));
    const retained = isRetained(item, choice.method);
    if (retained !== null) list.push(retained ? badge("retained", "retained") : badge("referred", "referred"));
    const index = data.methods.indexOf(choice.method);
    for (const [tag, methods] of Object.entries(item.tags)) {
      if (methods.includes(index)) list.push(badge("tag", TAGS[tag] || tag));
    }
    return h("p", { class: "examples-badges" }, ...list);
  }

  function figures(item) {
    const shown = choice.second ? [choice.method, choice.second] : [choice.method];
    const row = (name, cells) => h("tr", {}, h("th", { scope: "row" }, name), ...cells.map((cell) => h("td", {}, cell)));
    const confidence = (name) => percent(item.confidence[data.methods.indexOf(name)]);
    const quantities = data.quantities.filter((entry) => entry.name !== "confidence" && shown.some((name) => uncertainty(item, name, entry.name) !== null));
    const doubts = quantities.map((entry) => row(entry.title, shown.map((name) => digits(uncertainty(item, name, entry.name)))));
    const head = shown.length > 1 ? [h("thead", {}, h("tr", {}, h("td", {}), ...shown.map((name) => h("th", { scope: "col" }, title(name)))))] : [];
    const answers = shown.map((name) => (answered(item, name) ? names(answerOf(item, name)) || "no label" : "–"));
    const body = [row("Answer", answers), row("Confidence", shown.map(confidence)), ...doubts];
    return h("div", { class: "examples-figures" }, h("table", {}, ...head, h("tbody", {}, ...body)));
  }

  function card(item) {
    const truth = labelled(item) ? names(item.label) || "no label" : "none of the classes, or unknown";
    const heading = h("h5", { dir: "auto" }, nameOf(item));
    const label = h("p", { class: "examples-label" }, "Label: ", h("b", {}, truth));
    return h("li", { class: "examples-card", tabindex: "-1" }, heading, media(item), badges(item), label, figures(item));
  }

  /* --- drawing ---------------------------------------------------------------------------------------------------- */

  function settle() {
    const visible = data.methods.filter((name) => !page.state.hidden.has(title(name)));
    const methods = visible.length ? visible : data.methods;
    if (!methods.includes(choice.method)) choice.method = methods.includes(data.best) ? data.best : methods[0];
    if (!methods.includes(choice.second) || choice.second === choice.method) choice.second = "";
    if (choice.show === "disagree" && !choice.second) choice.second = methods.find((name) => name !== choice.method) || "";
    const own = data.quantities.filter((entry) => data.items.some((item) => uncertainty(item, choice.method, entry.name) !== null));
    if (!own.some((entry) => entry.name === choice.quantity)) {
      const usual = own.find((entry) => entry.name === data.tagged_by) || own[0];
      choice.quantity = usual ? usual.name : "";
    }
    choice.order = choice.order || (UNCERTAIN_FIRST.has(choice.show) ? "uncertain" : "certain");
    fill(split.input, data.splits.map((entry, index) => [String(index), entry.name]), String(choice.split));
    fill(method.input, methods.map((name) => [name, title(name)]), choice.method);
    const others = methods.filter((name) => name !== choice.method);
    fill(second.input, [["", `no other ${noun}`]].concat(others.map((name) => [name, title(name)])), choice.second);
    fill(show.input, SHOWN, choice.show);
    fill(quantity.input, own.map((entry) => [entry.name, entry.title]), choice.quantity);
    fill(order.input, [["certain", "most certain first"], ["uncertain", "most uncertain first"]], choice.order);
    order.input.disabled = quantity.input.disabled = choice.show === "border";
  }

  function draw() {
    settle();
    const items = sorted(matching());
    const shown = items.slice(0, PER_PAGE * choice.pages);
    const total = data.items.filter((item) => item.split === choice.split).length;
    const set = data.splits[choice.split];
    const advice = choice.show === "border" && !thresholdOf(choice.method) ? ` There is no threshold of this ${noun} yet: choose one in the referral part.` : "";
    status.textContent = `${items.length} of ${total} examples; the test set has ${set.examples}.${advice}`;
    cards.replaceChildren(...shown.map(card));
    more.hidden = shown.length === items.length;
    more.textContent = `Show more (${items.length - shown.length})`;
  }

  /* Follow the page only where it has changed: a choice made here stays, even if the page knows no such test set. */
  const followed = { split: "", method: "" };
  function follow() {
    const { split: name, method: highlighted } = page.state;
    const index = data.splits.findIndex((entry) => entry.name === name);
    if (name !== followed.split && index >= 0) Object.assign(choice, { split: index, pages: 1 });
    const named = data.methods.find((entry) => title(entry) === highlighted);
    if (highlighted !== followed.method && named) Object.assign(choice, { method: named, pages: 1 });
    Object.assign(followed, { split: name, method: highlighted });
    draw();
  }

  element.replaceChildren(h("div", { class: "examples" }, h("div", { class: "examples-controls" }, ...fields), status, cards, more));
  page.subscribe(follow);
  page.thresholdListeners.push((task) => { if (task === data.task) draw(); });
  follow();
};
