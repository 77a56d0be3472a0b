"use strict";
const facts = JSON.parse(document.getElementById("facts").textContent);
const all = (query, root = document) => [...root.querySelectorAll(query)];
const byId = (id) => document.getElementById(id);
const cells = facts.cells || [];

// Sorting: a click on a head. Figures by value ("-" last), words by alphabet.
function value(row, column) {
  const text = row.cells[column].textContent.trim();
  const number = parseFloat(text.replace(/,/g, ""));
  return text === "-" || text === "" ? null : Number.isNaN(number) || !row.cells[column].classList.contains("n") ? text : number;
}
function sort(head) {
  const body = head.closest("table").tBodies[0], column = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  all("th", head.closest("tr")).forEach((other) => other.setAttribute("aria-sort", "none"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...body.rows].map((row) => [value(row, column), row]);
  rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null)
    : (down ? -1 : 1) * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))));
  body.append(...rows.map(([, row]) => row));
}
all("th[aria-sort]").forEach((head) => head.addEventListener("click", () => sort(head)));

// Filtering: words and axes decide which cells are shown, in the tables of cells and in every plot.
const shown = new Set(cells.map((_, n) => n));
function asked() {
  const words = all("#asked input[type=search]").flatMap((input) => input.value.toLowerCase().split(/\s+/).filter(Boolean));
  const wanted = all("#asked select[data-axis]").filter((select) => select.value).map((select) => [select.dataset.axis, select.value]);
  cells.forEach((cell, n) => {
    const text = Object.entries(cell.axes).map(([axis, word]) => axis + "=" + word).join(" ").toLowerCase();
    const fits = words.every((word) => text.includes(word)) && wanted.every(([axis, word]) => cell.axes[axis] === word);
    fits ? shown.add(n) : shown.delete(n);
  });
  const fit = limited();
  all("table.cells tr[data-cell]").forEach((row) => { row.hidden = !shown.has(+row.dataset.cell); });
  all(".pt").forEach((point) => {
    const n = +point.dataset.cell;
    point.classList.toggle("off", n >= 0 && (!shown.has(n) || point.closest(".first") !== null && !fit.has(n)));
  });
  if (byId("shown")) byId("shown").textContent = shown.size === cells.length ? "" : shown.size + " of " + cells.length + " cells";
  best(fit);
}

// The cells with all figures that are shown and keep to the limits.
function limited() {
  const limits = all("#asked input[data-limit]").filter((input) => input.value !== "").map((input) => [input.dataset.limit, +input.value]);
  const chip = byId("chip") ? byId("chip").value : "";
  const share = (cell) => Math.min(...(chip ? [cell.ane[chip] ?? 0] : Object.values(cell.ane).length ? Object.values(cell.ane) : [0]));
  const keeps = (cell, [name, limit]) => name === "ane" ? share(cell) >= limit
    : cell[name] !== null && facts.signs[name] * (cell[name] - limit) >= 0;
  return new Map((facts.choice || []).filter((cell) => shown.has(cell.cell) && limits.every((limit) => keeps(cell, limit)))
    .map((cell) => [cell.cell, cell]));
}

// The best of each work in each goal: sound cells before those in doubt, equal ones by facts.order, as results/ranking.py has it.
function gain(cell, goal) { return cell[goal] === null ? -Infinity : facts.signs[goal] * cell[goal]; }
function ahead(goals) {
  return (a, b) => { for (const goal of goals) if (gain(a, goal) !== gain(b, goal)) return gain(b, goal) > gain(a, goal) ? b : a; return a; };
}
function winners(among, work) {
  const found = new Map(), sound = among.filter((cell) => cell.sound), fit = sound.length ? sound : among;
  const speed = Object.keys(facts.works[work].goals)[0];
  for (const [goal, word] of Object.entries(facts.works[work].goals)) {
    const first = fit.reduce(ahead([goal, ...facts.order])), others = fit.filter((cell) => cell !== first);
    const alike = others.filter((cell) => goal === "headline_ms" ? first.same.includes(cell.cell) : cell[goal] === first[goal]);
    const winner = found.get(first.cell) || { cell: first, goals: [], tied: [] };
    winner.goals.push(goal === speed || !alike.length ? word
      : word + (alike.length === others.length ? " (all alike)" : " (" + alike.length + " more alike)"));
    if (goal === speed) Object.assign(winner, { tied: alike, second: others.length ? others.reduce(ahead([goal, ...facts.order])) : null });
    found.set(first.cell, winner);
  }
  return [...found.values()];
}
function best(fit) {
  const body = byId("best");
  if (!body) return;
  const heads = all("table.best th");
  const line = (kind, work, cell) => {
    const made = body.insertRow();
    made.className = kind;
    if (work !== undefined) made.dataset.work = work;
    if (cell !== undefined) made.dataset.cell = cell;
    return made;
  };
  const put = (row, text, kind, span) => Object.assign(row.insertCell(), { textContent: text, className: kind, colSpan: span || 1 });
  body.replaceChildren();
  facts.works.forEach(({ name }, work) => {
    const among = [...fit.values()].filter((cell) => cell.work === work);
    if (among.length && name) put(line("of", work), name, "", heads.length);
    if (among.length) winners(among, work).forEach((winner) => {
      const cell = cells[winner.cell.cell], made = line(winner.cell.sound ? "" : "doubt", work, winner.cell.cell), said = note(winner);
      put(made, winner.goals.join(", "), "goals");
      put(made, cell.short, "name");
      cell.figures.forEach((text, n) => { Object.assign(put(made, text, text === "-" ? "n none" : "n").dataset, heads[n + 2].dataset); });
      if (said) put(line(winner.cell.sound ? "note" : "note doubt"), "", "", heads.length)
        .append(Object.assign(document.createElement("span"), { textContent: said, title: said }));
    });
  });
  if (!fit.size) put(line("note"), "No cell keeps to that.", "", heads.length);
  picture(body.rows[0]?.dataset.work);
}
function note(winner) {
  const names = winner.tied.slice(0, facts.ties).map((other) => cells[other.cell].short).join("; ");
  const more = winner.tied.length > facts.ties ? " and " + (winner.tied.length - facts.ties) + " more" : "";
  const sure = winner.second && winner.cell.leads[winner.second.cell];
  const lead = names ? "tie with " + names + more + ": " + facts.works[winner.cell.work].tie
    : winner.second ? "before " + cells[winner.second.cell].short + (sure ? ": " + sure : "") : "";
  return [cells[winner.cell.cell].doubt, lead].filter(Boolean).join(". ");
}

// One picture at a time, where there are several works: that of the row that was chosen.
function picture(work) {
  const figures = all(".first figure"), wanted = figures.find((figure) => figure.dataset.work === work);
  if (figures.length > 1 && wanted) figures.forEach((figure) => { figure.hidden = figure !== wanted; });
}

// Picking: a point or a row shows the same cell everywhere.
let picked = null;
function pick(n, words) {
  all(".on").forEach((node) => node.classList.remove("on"));
  picked = n === picked ? null : n;
  byId("picked").textContent = picked === null ? "" : words || [cells[n].name, cells[n].doubt].filter(Boolean).join("; ");
  if (picked !== null) all('[data-cell="' + n + '"]').forEach((node) => node.classList.add("on"));
}
document.addEventListener("click", (event) => {
  picture(event.target.closest("tr[data-work]")?.dataset.work);
  const node = event.target.closest("[data-cell]");
  if (!node || event.target.closest("a") || +node.dataset.cell < 0) return;
  pick(+node.dataset.cell, node.querySelector("title")?.textContent);
});

byId("asked")?.addEventListener("input", asked);
byId("asked")?.addEventListener("reset", () => setTimeout(asked));
byId("asked")?.addEventListener("submit", (event) => event.preventDefault());
if (byId("limits") && matchMedia("(max-width: 48rem)").matches) byId("limits").open = false;
if (cells.length) asked();
