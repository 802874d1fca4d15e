"use strict";
// Links the three panes. State is the address: #op-3 (an operator), #K1 (a kernel), #line-9 (a source line).
(() => {
  const data = JSON.parse(document.getElementById("plan-data").textContent);
  const $ = (id) => document.getElementById(id);
  const svg = document.querySelector("#graph svg");
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const boxes = all("a.box", svg), links = all(".link", svg), regions = all(".region", svg);
  const labels = Object.keys(data.kernels);
  const whole = svg.viewBox.baseVal;
  const full = { x: 0, y: 0, w: whole.width, h: whole.height };
  let view = { ...full };

  // -- the view of the graph --------------------------------------------------------------------
  const show = () => svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
  const ratio = () => Math.max(view.w / svg.clientWidth, view.h / svg.clientHeight);
  const zoom = (factor, x = view.x + view.w / 2, y = view.y + view.h / 2) => {
    const w = Math.min(Math.max(view.w * factor, 120), full.w * 4), real = w / view.w;
    view = { x: x - (x - view.x) * real, y: y - (y - view.y) * real, w, h: view.h * real };
    show();
  };
  const point = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const fit = () => { view = { ...full }; show(); };
  const readable = () => { // at first: all of it, unless letters would be too small
    fit();
    if (ratio() > 1.6) { const k = 1.2 / ratio(); view = { x: 0, y: 0, w: full.w * k, h: full.h * k };
      if (svg.clientWidth / svg.clientHeight > view.w / view.h) { view.w = view.h * svg.clientWidth / svg.clientHeight; view.x = full.w / 2 - view.w / 2; } show(); }
  };
  const centre = (element) => {
    const box = element.getBBox(), inner = svg.querySelector("g[transform]").transform.baseVal.consolidate().matrix;
    const place = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2).matrixTransform(inner);
    if (ratio() > 1.4) { const k = 1 / ratio(); view.w *= k; view.h *= k; }
    view.x = place.x - view.w / 2; view.y = place.y - view.h / 2; show();
  };
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const p = point(event);
    zoom(Math.exp(event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), p.x, p.y);
  }, { passive: false });
  let held = null, moved = false;
  svg.addEventListener("pointerdown", (event) => { held = { p: point(event), id: event.pointerId }; moved = false; });
  svg.addEventListener("pointermove", (event) => {
    if (!held) return;
    const p = point(event), dx = held.p.x - p.x, dy = held.p.y - p.y;
    if (!moved && Math.hypot(dx, dy) < 4 * ratio()) return;
    if (!moved) svg.setPointerCapture(held.id);
    moved = true; view.x += dx; view.y += dy; show();
  });
  addEventListener("pointerup", () => { held = null; });
  svg.addEventListener("click", (event) => { if (moved) { event.preventDefault(); event.stopPropagation(); moved = false; } }, true);
  svg.addEventListener("dragstart", (event) => event.preventDefault());
  $("zoom-fit").onclick = fit; $("zoom-in").onclick = () => zoom(0.7); $("zoom-out").onclick = () => zoom(1.4);

  // -- the panes --------------------------------------------------------------------------------
  const bytes = (n) => { const u = ["B", "kB", "MB", "GB", "TB"]; let k = 0; while (n >= 999.5 && k < 4) { n /= 1000; k++; } return `${+n.toPrecision(3)} ${u[k]}`; };
  const chip = (label) => {
    const a = document.createElement("a");
    a.className = `chip hue${data.kernels[label].hue}`; a.href = `#${label}`; a.textContent = label; a.title = data.kernels[label].name;
    return a;
  };
  const details = (pairs) => $("details").replaceChildren(...pairs.filter(([, v]) => v).flatMap(([name, value]) => {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name; dd.textContent = value; return [dt, dd];
  }));
  let shown = null;
  const code = (label, word) => {
    const pane = $("listing"), sources = data.kernels[label] ? data.kernels[label].code : {};
    if (shown !== label) {
      const text = Object.entries(sources).map(([name, source]) => `// ${name}\n${source}`).join("\n");
      pane.replaceChildren(...(text || "// a library call: no generated code").split("\n").map((line) => {
        const span = document.createElement("span"); span.textContent = line; return span;
      }));
      shown = label;
    }
    const escaped = word && word.replace(/[^\w]/g, "");
    const wanted = escaped ? new RegExp(`\\b${escaped}_*\\d*\\b`) : null;
    let first = null;
    for (const span of pane.children) {
      const on = Boolean(wanted) && wanted.test(span.textContent);
      span.classList.toggle("on", on);
      if (on && !first) first = span;
    }
    if (first) pane.scrollTop = first.offsetTop - pane.offsetTop - 40; else pane.scrollTop = 0;
    all("#kernels .chip").forEach((a) => a.classList.toggle("on", a.textContent === label));
  };
  const lines = (numbers) => {
    let first = null;
    for (const row of all("#source li")) {
      const on = numbers.includes(+row.dataset.line);
      row.classList.toggle("on", on);
      if (on && !first) first = row;
    }
    if (first) first.scrollIntoView({ block: "nearest" });
  };
  const mark = (nodes, labelled) => {
    boxes.forEach((b) => b.classList.toggle("on", nodes.has(b.dataset.node)));
    regions.forEach((r) => r.classList.toggle("on", r.dataset.kernel === labelled));
    links.forEach((l) => l.classList.toggle("on", nodes.has(l.dataset.from) || nodes.has(l.dataset.to)));
  };

  // -- what can be selected ---------------------------------------------------------------------
  const operator = (id, box) => {
    const o = data.operators[id], label = (box && box.id.split("-")[2]) || o.kernels[0];
    mark(new Set([id]), null); lines([o.line]);
    const into = links.filter((l) => l.dataset.from === id && l.classList.contains("memory"));
    details([
      ["value", o.name], ["is", o.formula], ["type", `${o.type}, ${bytes(o.bytes)}`], ["kernel", o.kernels.join(" and ")],
      ["stage", o.stage && o.kernels.length ? String(o.stage) : ""], ["line", o.line ? String(o.line) : ""],
      ...into.map((l) => [labels[+l.dataset.regions.split(" ")[1]], l.querySelector("title").textContent.replace("\n", ": ")]),
      ...(label ? data.kernels[label].facts : []),
    ]);
    if (label) code(label, o.op === "input" ? o.name : o.op);
    if (box) centre(box);
  };
  const kernel = (label) => {
    mark(new Set(), label); lines(data.kernels[label].lines);
    details([["kernel", `${label}  ${data.kernels[label].name}`], ...data.kernels[label].facts]); code(label, null);
    const region = regions.find((r) => r.dataset.kernel === label);
    if (region) centre(region.querySelector("rect"));
  };
  const line = (number) => {
    const ids = new Set(Object.keys(data.operators).filter((k) => data.operators[k].line === number));
    mark(ids, null); lines([number]);
    const names = [...ids].map((k) => data.operators[k].name);
    details([["line", String(number)], ["computes", names.join(", ") || "nothing of its own"]]);
    const first = boxes.find((b) => ids.has(b.dataset.node));
    if (first) centre(first);
    const label = [...ids].flatMap((k) => data.operators[k].kernels)[0];
    if (label) code(label, null);
  };
  const edge = (link) => {
    mark(new Set(), null); links.forEach((l) => l.classList.toggle("on", l === link));
    const [from, to] = link.dataset.regions.split(" ").map(Number), [what, why] = link.querySelector("title").textContent.split("\n");
    details([["value", what], ["from", labels[from] || "memory"], ["to", labels[to]], ["why", why]]);
    code(labels[to], null);
  };
  const follow = () => {
    const name = decodeURIComponent(location.hash.slice(1)), box = boxes.find((b) => b.id === name);
    if (box) operator(box.dataset.node, box);
    else if (data.kernels[name]) kernel(name);
    else if (/^line-\d+$/.test(name)) line(+name.slice(5));
    else if (/^op-\d+$/.test(name) && data.operators[name.slice(3)]) operator(name.slice(3), null);
  };
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const to = event.target.closest("a[href^='#']");
    const address = to && (to.getAttribute("href"));
    if (address && location.hash === address) follow();
    if (to) return;
    const row = event.target.closest("#source li"), link = event.target.closest("#graph .link"), region = event.target.closest("#graph .region");
    if (row) location.hash = `line-${row.dataset.line}`;
    else if (link) edge(link);
    else if (region) location.hash = region.dataset.kernel;
  });

  // -- search -----------------------------------------------------------------------------------
  let hits = [], next = 0;
  const search = () => {
    const text = $("search").value.trim().toLowerCase(), at = text.match(/^line (\d+)$/);
    hits = boxes.filter((b) => {
      const o = data.operators[b.dataset.node];
      return text && (at ? o.line === +at[1] : `${o.name} ${o.formula} ${o.type} ${o.kernels.join(" ")}`.toLowerCase().includes(text));
    });
    next = 0;
    const kept = new Set(hits);
    boxes.forEach((b) => b.classList.toggle("dim", Boolean(text) && !kept.has(b)));
    $("found").textContent = text ? `${hits.length} found` : "";
  };
  $("search").addEventListener("input", search);
  $("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !hits.length) return;
    const hit = hits[next % hits.length];
    next += 1; $("found").textContent = `${((next - 1) % hits.length) + 1} of ${hits.length}`;
    location.hash = hit.id;
  });
  addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== $("search")) { event.preventDefault(); $("search").focus(); }
    if (event.key === "Escape") { $("search").value = ""; search(); $("search").blur(); }
  });

  $("kernels").append(...labels.map(chip));
  readable();
  if (location.hash) follow(); else if (labels.length) { code(labels[0], null); details([["kernel", `${labels[0]}  ${data.kernels[labels[0]].name}`], ...data.kernels[labels[0]].facts]); }
})();
