// Tables: sort by a column, hide methods, filter rows by text, mark the chosen metric.
function sortTables() {
  // a hint that begins with the number a cell is sorted by stands for it
  const value = (cell) => (cell.hasAttribute("data-sort") ? cell.getAttribute("data-sort") : cell.tagName === "TD" ? cell.title : cell.textContent.trim());
  const order = (a, b) => {
    const x = parseFloat(a), y = parseFloat(b);
    return isNaN(x) || isNaN(y) ? a.localeCompare(b) : x - y;
  };
  document.querySelectorAll("table.sortable").forEach((table) => {
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = page.h("button", { class: "sort", type: "button" }, [...head.childNodes]);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort"), opposite = { ascending: "descending", descending: "ascending" };
        const next = now ? opposite[now] : head.dataset.first || "ascending", sign = next === "ascending" ? 1 : -1;
        table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", next);
        const rows = [...table.tBodies[0].rows].map((row, place) => [value(row.cells[column]), place, row]);
        rows.sort(([a, i], [b, j]) => {
          if (a === "" || b === "") { return (a === "") - (b === "") || i - j; }  // what has no value comes last
          return sign * order(a, b) || i - j;
        });
        table.tBodies[0].append(...rows.map(([, , row]) => row));
      });
    });
    table.querySelectorAll("tbody tr[data-method] > th").forEach((head) => {
      head.classList.add("clickable");
      head.addEventListener("click", () => highlight(head.parentElement.dataset.method));
    });
  });
}

function highlight(title) { page.set({ method: page.state.method === title ? "" : title }); }

// Whether what is of one test set is shown: all severities of a shift stand together.
function isOfSplit(own, split) { return split === "" || own === split || own === split.replace(/-\d+$/, ""); }

function applyColumns(split) {
  document.querySelectorAll("section.chapter[data-task] table:has(th[data-test])").forEach((table) => {
    const heads = [...table.tHead.rows[0].cells], shown = heads.map(({ dataset }) => !dataset.test || isOfSplit(dataset.test, split));
    [...table.rows].forEach((row) => [...row.cells].forEach((cell, column) => { cell.hidden = !shown[column]; }));
    table.closest(".scroll").hidden = shown.length > 1 && !shown.slice(1).includes(true);
  });
}

function applyTables({ hidden, method, metric, filter }) {
  const words = filter.trim().toLowerCase();
  document.querySelectorAll("main table.sortable tbody tr").forEach((row) => {
    const title = row.dataset.method;
    row.hidden = hidden.has(title) || (words !== "" && !row.textContent.toLowerCase().includes(words));
    row.classList.toggle("highlighted", title !== undefined && title === method);
  });
  document.querySelectorAll("th[data-metric]").forEach((head) => {
    const chosen = metric !== "" && head.dataset.metric === metric, column = head.cellIndex;
    [...head.closest("table").rows].forEach((row) => row.cells[column] && row.cells[column].classList.toggle("chosen", chosen));
  });
}
