"use strict";
(function () {
  function value(cell) {
    return cell.hasAttribute("data-sort") ? cell.getAttribute("data-sort") : cell.textContent.trim();
  }
  function order(a, b) {
    var x = parseFloat(a), y = parseFloat(b);
    if (a === "" || b === "") { return a === b ? 0 : (a === "" ? 1 : -1); }
    return isNaN(x) || isNaN(y) ? a.localeCompare(b) : x - y;
  }
  document.querySelectorAll("table.sortable").forEach(function (table) {
    table.querySelectorAll("thead th").forEach(function (head, column) {
      var button = document.createElement("button");
      button.className = "sort";
      button.type = "button";
      while (head.firstChild) { button.appendChild(head.firstChild); }
      head.appendChild(button);
      button.addEventListener("click", function () {
        var first = head.getAttribute("data-first") || "ascending";
        var now = head.getAttribute("aria-sort");
        var next = !now ? first : (now === "ascending" ? "descending" : "ascending");
        table.querySelectorAll("thead th").forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", next);
        var body = table.tBodies[0], sign = next === "ascending" ? 1 : -1;
        Array.from(body.rows).map(function (row, place) { return [row, place]; }).sort(function (a, b) {
          var x = value(a[0].cells[column]), y = value(b[0].cells[column]);
          if (x === "" || y === "") { return order(x, y) || a[1] - b[1]; }
          return sign * order(x, y) || a[1] - b[1];
        }).forEach(function (pair) { body.appendChild(pair[0]); });
      });
    });
  });
  var links = Array.from(document.querySelectorAll("nav a"));
  var targets = links.map(function (link) { return document.getElementById(link.getAttribute("href").slice(1)); });
  function mark() {
    var here = 0;
    targets.forEach(function (target, index) { if (target && target.getBoundingClientRect().top < 140) { here = index; } });
    links.forEach(function (link, index) { link.classList.toggle("here", index === here); });
  }
  if (links.length) { document.addEventListener("scroll", mark, { passive: true }); mark(); }
})();
