// The report's page: draws its charts with Vega, shows what is chosen, follows or hides algorithms, sorts and saves tables.
// `vegaEmbed` is defined by the script before this one, unless there are no charts.
"use strict";
(async () => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const given = await read(document.getElementById("data").textContent);
  const KEY = `seqdg ${location.pathname}`; // what was chosen outlives a reload
  const state = { ...given.first, follow: "", hidden: [], ...JSON.parse(sessionStorage.getItem(KEY) ?? "{}") };
  const views = new Map(); // by the element that a chart is drawn in
  const tip = document.getElementById("tip");

  async function read(letters) {
    const bytes = Uint8Array.from(atob(letters.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // ------------------------------------------------------------------ charts

  async function draw(box) {
    const { chart, columns } = given.panels[box.dataset.chart];
    const fields = Object.entries(columns);
    const count = fields.length ? fields[0][1].length : 0;
    const rows = Array.from({ length: count }, (_, i) => Object.fromEntries(fields.map(([name, values]) => [name, values[i]])));
    const spec = structuredClone(given.charts[chart]); // Vega writes into what it is given
    spec.data.find((source) => source.name === "rows").values = rows;
    spec.width = box.clientWidth;
    const options = { mode: "vega", renderer: "svg", actions: false, defaultStyle: false, logLevel: 1, tooltip: showValue };
    const { view } = await vegaEmbed(box, spec, options);
    views.set(box, { view, names: new Set(columns.look) });
    setSignals(views.get(box));
    await view.runAsync();
  }

  function setSignals({ view, names }) {
    view.signal("follow", names.has(state.follow) ? state.follow : "").signal("hidden", state.hidden);
  }

  // What is in sight is drawn first.
  async function drawAll() {
    for (const [box, { view }] of views) {
      if (box.isConnected) continue;
      view.finalize();
      views.delete(box);
    }
    const left = all(".chart").filter((box) => !views.has(box));
    const near = (box) => box.getBoundingClientRect().top < 1.2 * innerHeight && box.getBoundingClientRect().bottom > 0;
    for (const box of [...left.filter(near), null, ...left.filter((box) => !near(box))]) {
      if (box) await draw(box);
      else performance.mark("near");
      if (!box || left.length > 9) await new Promise((resume) => setTimeout(resume)); // the page answers between charts
    }
    document.documentElement.dataset.drawn = Number(document.documentElement.dataset.drawn ?? 0) + 1;
  }

  // Curves can be zoomed: with Ctrl and the wheel, by dragging, and by these keys.
  const ZOOM = { "+": 0.5, "=": 0.5, "-": 2 };
  const PAN = { ArrowLeft: [-0.2, 0], ArrowRight: [0.2, 0], ArrowDown: [0, -0.2], ArrowUp: [0, 0.2] };

  function changeAxes(event) {
    const entry = views.get(event.target);
    if (!entry || event.ctrlKey || event.metaKey || !(event.key in ZOOM || event.key in PAN || event.key === "0")) return;
    event.preventDefault();
    entry.whole ??= Object.fromEntries(["x", "y"].map((axis) => [axis, entry.view.scale(axis).domain()]));
    for (const [i, axis] of ["x", "y"].entries()) {
      const [low, high] = entry.view.scale(axis).domain();
      const half = ((high - low) / 2) * (ZOOM[event.key] ?? 1);
      const middle = (low + high) / 2 + (PAN[event.key] ?? [0, 0])[i] * (high - low);
      entry.view.signal(`zoom_${axis}`, event.key === "0" ? entry.whole[axis] : [middle - half, middle + half]);
    }
    entry.view.runAsync();
  }

  // ------------------------------------------------------------------ what is under the pointer

  function showValue(handler, event, item, value) {
    if (value === null || value === undefined || value === "") return hideTip();
    const lines = typeof value === "object" ? Object.entries(value) : [["", value]];
    const known = lines.filter(([, text]) => !["null", "NaN", "undefined", ""].includes(String(text)));
    showTip(known.map(([name, text]) => (name && name !== "name" ? `${name}: ${text}` : text)).join("\n"), event.clientX, event.clientY);
  }

  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 16 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 8 : y + 16}px`;
  }

  function showTrials(cell) {
    const { left, bottom } = cell.getBoundingClientRect();
    showTip(cell.dataset.tip, left, bottom - 10);
  }

  function hideTip() {
    tip.hidden = true;
  }

  // ------------------------------------------------------------------ what is chosen

  const keyOf = (of) => `${of.select}\n${of.criterion}\n${of.baseline}`;
  let shown = given.choices[keyOf(given.first)];

  function show() {
    const wanted = given.choices[keyOf(state)];
    if (!wanted) Object.assign(state, given.first); // another run, or a rule that it has not for this criterion
    const parts = given.choices[keyOf(state)] ?? {};
    for (const part of all("[data-part]")) {
      const name = part.dataset.part;
      if (parts[name] !== undefined && parts[name] !== shown[name]) part.innerHTML = given.fragments[parts[name]];
    }
    shown = parts;
    for (const name of ["select", "criterion", "baseline"]) {
      const control = document.querySelector(`.bar select[name=${name}]`);
      if (control) control.value = state[name];
    }
    for (const table of all("table")) {
      all("td[data-tip]", table).forEach((cell, i) => (cell.tabIndex = i ? -1 : 0)); // arrow keys reach the others
    }
    mark();
    return drawAll();
  }

  function mark() {
    for (const entry of views.values()) {
      setSignals(entry);
      entry.view.runAsync();
    }
    for (const button of all("button.follow")) button.setAttribute("aria-pressed", button.dataset.name === state.follow);
    for (const box of all("input.show")) box.checked = !state.hidden.includes(box.dataset.name);
    for (const part of all("[data-of]")) {
      part.classList.toggle("followed", part.dataset.of === state.follow);
      part.classList.toggle("faded", state.hidden.includes(part.dataset.of));
    }
    sessionStorage.setItem(KEY, JSON.stringify(state));
  }

  function say(text) {
    document.getElementById("said").textContent = text; // read out to those who cannot see the page change
  }

  // ------------------------------------------------------------------ tables

  const textOf = (cell) => (cell.querySelector("strong")?.firstChild ?? cell).textContent.trim();

  function sortBy(head) {
    const body = head.closest("table").tBodies[0];
    const before = head.getAttribute("aria-sort");
    const order = before === "descending" ? "ascending" : "descending";
    for (const other of head.parentElement.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const value = (row) => textOf(row.cells[head.cellIndex]);
    const number = (row) => parseFloat(value(row).replace("<", ""));
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [number(a), number(b)];
      if (Number.isNaN(x) && Number.isNaN(y)) return sign * value(a).localeCompare(value(b));
      return Number.isNaN(x) ? 1 : Number.isNaN(y) ? -1 : sign * (x - y); // what has no number stands last
    });
    body.append(...rows);
    say(`Sorted by ${textOf(head)}, ${order}.`);
  }

  function makeCsv(table) {
    const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    return [...table.rows].map((row) => [...row.cells].map((cell) => quote(textOf(cell))).join(",")).join("\n") + "\n";
  }

  function makeLatex(table) {
    const words = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "×": "$\\times$", "<": "$<$", ">": "$>$" };
    const escape = (text) => text.replace(/[\\~^±×<>]|[&%$#_{}]/g, (sign) => words[sign] ?? `\\${sign}`);
    const cell = (c) => (c.querySelector("strong") ? `\\textbf{${escape(textOf(c))}}` : escape(textOf(c)));
    const lines = [...table.rows].map((row) => `${[...row.cells].map(cell).join(" & ")} \\\\`);
    if (table.tHead) lines.splice(1, 0, "\\midrule");
    const columns = `l${"r".repeat(table.rows[0].cells.length - 1)}`;
    return `\\begin{tabular}{${columns}}\n\\toprule\n${lines.join("\n")}\n\\bottomrule\n\\end{tabular}\n`;
  }

  function save(button) {
    const table = button.closest(".save").previousElementSibling.querySelector("table");
    const [make, ending] = button.dataset.save === "csv" ? [makeCsv, "csv"] : [makeLatex, "tex"];
    const name = textOf(table.caption).toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([make(table)], { type: "text/plain" }));
    link.download = `${name}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    say(`Saved ${link.download}.`);
  }

  function moveBetweenCells(event) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    const cell = event.target;
    const row = [...cell.closest("tbody").rows][cell.parentElement.sectionRowIndex + step[0]];
    const next = row?.cells[cell.cellIndex + step[1]];
    if (!next?.dataset.tip) return;
    event.preventDefault();
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  // ------------------------------------------------------------------ controls

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.matches(".follow")) {
      state.follow = button.dataset.name === state.follow ? "" : button.dataset.name;
      say(state.follow ? `Following ${state.follow}.` : "Following none.");
      mark();
    } else if (button?.matches(".sort")) {
      sortBy(button.closest("th"));
    } else if (button?.dataset.save) {
      save(button);
    }
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("input.show")) {
      const others = state.hidden.filter((name) => name !== event.target.dataset.name);
      state.hidden = event.target.checked ? others : [...others, event.target.dataset.name];
      mark();
    } else if (event.target.matches(".bar select")) {
      state[event.target.name] = event.target.value;
      show();
      say(`Showing ${state.criterion}, selected by ${state.select}, against ${state.baseline}.`);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      hideTip();
      state.follow = "";
      mark();
    } else if (event.target.matches(".chart")) changeAxes(event);
    else if (event.target.matches("td[data-tip]")) moveBetweenCells(event);
  });
  document.addEventListener("mouseover", (event) => {
    const cell = event.target.closest("td[data-tip]");
    if (cell) showTrials(cell);
    else if (!event.target.closest(".chart")) hideTip();
  });
  document.addEventListener("focusin", (event) => (event.target.matches("td[data-tip]") ? showTrials(event.target) : hideTip()));
  document.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("scroll", hideTip, { passive: true });
  new ResizeObserver(() => {
    for (const [box, { view }] of views) {
      if (box.isConnected && view.width() !== box.clientWidth) view.width(box.clientWidth).runAsync();
    }
  }).observe(document.querySelector("main"));

  // A page that `seqdg report --watch` keeps writing looks every two seconds for a newer one, in the file beside it.
  if (given.version) {
    window.seqdgVersion = (version) => version !== given.version && location.reload();
    const look = () => {
      const script = document.createElement("script");
      script.src = `${location.pathname.split("/").pop()}.version.js?${Date.now()}`;
      script.onload = () => script.remove();
      script.onerror = () => clearInterval(timer); // the watch is over
      document.head.append(script);
    };
    const timer = setInterval(look, 2000);
  }

  await show();
})();
