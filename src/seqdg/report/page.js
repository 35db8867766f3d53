// Draws the charts of the page with Vega, and follows or hides algorithms in all of them.
// `vegaEmbed` is defined by the script before this one.
"use strict";
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const given = JSON.parse(document.getElementById("charts").textContent);
  const state = { follow: "", hidden: [] };
  const views = new Map(); // by the element that a chart is drawn in

  // ------------------------------------------------------------------ charts

  async function draw(box) {
    const { chart, rows, names } = given.panels[box.dataset.chart];
    const spec = structuredClone(given.charts[chart]); // Vega writes into what it is given
    spec.data.find((source) => source.name === "rows").values = structuredClone(rows);
    spec.width = box.clientWidth;
    const { view } = await vegaEmbed(box, spec, { mode: "vega", renderer: "svg", actions: false, defaultStyle: false, tooltip: showValue, logLevel: 1 });
    views.set(box, { view, names: new Set(names) });
    apply(views.get(box));
    await view.runAsync();
  }

  function apply({ view, names }) {
    view.signal("follow", names.has(state.follow) ? state.follow : "").signal("hidden", state.hidden);
  }

  async function drawAll() {
    const boxes = all(".chart");
    const near = boxes.filter((box) => box.getBoundingClientRect().top < 1.5 * innerHeight);
    for (const box of near) await draw(box);
    document.documentElement.dataset.drawn = "near";
    for (const box of boxes.filter((box) => !near.includes(box))) {
      await new Promise((resume) => setTimeout(resume)); // between two charts the page answers
      await draw(box);
    }
    document.documentElement.dataset.drawn = "all";
  }

  function refresh() {
    for (const entry of views.values()) {
      apply(entry);
      entry.view.runAsync();
    }
    for (const button of all("button.follow")) {
      button.setAttribute("aria-pressed", button.dataset.name === state.follow);
    }
    for (const part of all("[data-of]")) {
      part.classList.toggle("followed", part.dataset.of === state.follow);
      part.classList.toggle("faded", state.hidden.includes(part.dataset.of));
    }
    for (const box of all("input.show")) box.checked = !state.hidden.includes(box.dataset.name);
  }

  // The charts of curves can be zoomed: with Ctrl and the wheel, by dragging, and by these keys.
  const ZOOM = { "+": 0.5, "=": 0.5, "-": 2 };
  const PAN = { ArrowLeft: [-0.2, 0], ArrowRight: [0.2, 0], ArrowDown: [0, -0.2], ArrowUp: [0, 0.2] };

  function changeAxes(event) {
    const entry = views.get(event.target);
    if (!entry || event.ctrlKey || event.metaKey || !(event.key in ZOOM || event.key in PAN || event.key === "0")) return;
    event.preventDefault();
    for (const [i, axis] of ["x", "y"].entries()) {
      const [low, high] = entry.view.scale(axis).domain();
      const half = ((high - low) / 2) * (ZOOM[event.key] ?? 1);
      const middle = (low + high) / 2 + (PAN[event.key] ?? [0, 0])[i] * (high - low);
      entry.view.signal(`zoom_${axis}`, event.key === "0" ? null : [middle - half, middle + half]);
    }
    entry.view.runAsync();
  }

  // ------------------------------------------------------------------ what is under the pointer

  const tip = document.getElementById("tip");

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

  function hideTip() {
    tip.hidden = true;
  }

  // ------------------------------------------------------------------ controls

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.follow");
    if (!button) return;
    state.follow = button.dataset.name === state.follow ? "" : button.dataset.name;
    refresh();
  });
  document.addEventListener("change", (event) => {
    if (!event.target.matches("input.show")) return;
    const others = state.hidden.filter((name) => name !== event.target.dataset.name);
    state.hidden = event.target.checked ? others : [...others, event.target.dataset.name];
    refresh();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      hideTip();
      state.follow = "";
      refresh();
    } else if (event.target.matches(".chart")) {
      changeAxes(event);
    }
  });
  addEventListener("scroll", hideTip, { passive: true });
  new ResizeObserver(() => {
    for (const [box, { view }] of views) {
      if (Math.abs(view.width() - box.clientWidth) > 0) view.width(box.clientWidth).runAsync();
    }
  }).observe(document.querySelector("main"));

  drawAll();
})();
