"use strict";
const facts = JSON.parse(document.getElementById("facts").textContent);
const all = (query, root = document) => [...root.querySelectorAll(query)];
const byId = (id) => document.getElementById(id);

// Sorting: a click on a head, or Enter. Figures by value ("-" last), words by alphabet.
function value(row, column) {
  const text = row.cells[column].textContent.trim();
  const number = parseFloat(text.replace(/,/g, ""));
  return text === "-" || text === "" ? null : Number.isNaN(number) || !row.cells[column].classList.contains("n") ? text : number;
}
function sort(head) {
  const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...body.rows].map((row) => [value(row, column), row]);
  rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null)
    : (down ? -1 : 1) * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))));
  body.append(...rows.map(([, row]) => row));
}
all("th").forEach((head) => {
  head.addEventListener("click", () => sort(head));
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
});

// Filtering: words and axes decide which cells are shown, in the tables of cells and in every plot.
const shown = new Set((facts.cells || []).map((_, n) => n));
function filter() {
  const form = byId("filters");
  if (!form) return;
  const words = form.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = all("select", form).filter((select) => select.value).map((select) => [select.dataset.axis, select.value]);
  facts.cells.forEach((cell, n) => {
    const text = Object.entries(cell).map(([axis, word]) => axis + "=" + word).join(" ").toLowerCase();
    const fits = words.every((word) => text.includes(word)) && wanted.every(([axis, word]) => cell[axis] === word);
    fits ? shown.add(n) : shown.delete(n);
  });
  all("tr[data-cell]").forEach((row) => { row.hidden = !shown.has(+row.dataset.cell); });
  all(".pt").forEach((point) => { const n = +point.dataset.cell; point.classList.toggle("off", n >= 0 && !shown.has(n)); });
  byId("shown").textContent = shown.size === facts.cells.length ? "" : shown.size + " of " + facts.cells.length + " cells";
  choose();
}

// Best under a constraint, among the cells shown. Cells that cannot be told apart from the best are named with it.
function choose() {
  const form = byId("best");
  if (!form) return;
  const goal = form.querySelector("select").value, sign = facts.figures[goal][2];
  const limits = all("input", form).filter((input) => input.value !== "").map((input) => [input.dataset.limit, +input.value]);
  const fit = facts.choice.filter((cell) => shown.has(cell.cell)
    && limits.every(([name, limit]) => facts.figures[name][2] * cell[name] >= facts.figures[name][2] * limit));
  const answer = byId("answer");
  answer.textContent = "";
  all(".pt.best").forEach((point) => point.classList.remove("best", "on"));
  if (!fit.length) { answer.textContent = "No cell keeps to that."; return; }
  const best = fit.reduce((a, b) => sign * b[goal] > sign * a[goal] ? b : a);
  const tied = fit.filter((cell) => cell !== best
    && (goal === "latency_median_ms" ? best.same.includes(cell.cell) : cell[goal] === best[goal]));
  const said = Object.entries(facts.figures).map(([name, [, unit]]) => shorten(best[name]) + " " + unit).join(", ");
  answer.append(facts.cells[best.cell].name + ": " + said);
  const small = document.createElement("small");
  small.textContent = " · " + fit.length + " of " + facts.choice.length + " cells keep to that"
    + (tied.length ? "; not told apart from it: " + tied.slice(0, 4).map((cell) => facts.cells[cell.cell].name).join("; ")
      + (tied.length > 4 ? " and " + (tied.length - 4) + " more" : "") : "")
    + (goal === "latency_median_ms" && facts.untested ? "; " + facts.untested : "");
  answer.append(small);
  all('.pt[data-cell="' + best.cell + '"]').forEach((point) => point.classList.add("best", "on"));
}
const shorten = (number) => number >= 100 ? number.toFixed(0) : String(+number.toPrecision(3));

// Picking: a point or a row shows the same cell everywhere.
let picked = null;
function pick(n, words) {
  all(".on:not(.best)").forEach((node) => node.classList.remove("on"));
  picked = n === picked ? null : n;
  byId("picked").textContent = picked === null ? "" : words || facts.cells[n].name;
  if (picked !== null) all('[data-cell="' + n + '"]').forEach((node) => node.classList.add("on"));
}
document.addEventListener("click", (event) => {
  const node = event.target.closest("[data-cell]");
  if (node && +node.dataset.cell >= 0) pick(+node.dataset.cell, node.querySelector("title")?.textContent);
});

byId("filters")?.addEventListener("input", filter);
byId("best")?.addEventListener("input", choose);
all("form").forEach((form) => form.addEventListener("submit", (event) => event.preventDefault()));
choose();
