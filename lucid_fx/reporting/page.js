// The page around the graph views: tiles, lists, ledger, charts, and what links them.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const ROWS = 500;

/** An element with text; texts of a model never become markup. */
function element(tag, text, cls) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (cls) made.className = cls;
  return made;
}

// ---- colours ---------------------------------------------------------------------------------

let mode = "status";
const opHues = new Map();
const common = new Map();
for (const node of data.views.flatMap(v => v.nodes)) common.set(node.op, (common.get(node.op) ?? 0) + 1);
const opTypes = [...common].sort((a, b) => b[1] - a[1]).map(([op]) => op);
opTypes.forEach((op, i) => opHues.set(op, (i * 137.5) % 360));
const opColour = op => (opHues.has(op) ? `hsl(${opHues.get(op)} ${dark() ? 40 : 60}% ${dark() ? 34 : 76}%)` : colourOf("plain"));

/** What fills a box, for the boxes of a pane. */
function colouring(pane) {
  const plain = colourOf("plain"), fills = Object.fromEntries(STATUSES.map(s => [s, s ? colourOf(s) : plain]));
  return {
    status: box => fills[box.status],
    error: box => (box.error === null ? plain : scaleColour((box.error - 10) / 40)),
    time: box => (box.time === null ? plain : scaleColour(1 - Math.sqrt(box.time / pane.slowest))),
    op: box => opColour(box.op),
  }[mode];
}

function legend() {
  const entries = {
    status: STATUSES.filter(Boolean).map(s => [colourOf(s), s.replace("_", " ")]).concat([[colourOf("plain"), "not in the ledger"]]),
    error: [10, 20, 30, 40, 50].map(db => [scaleColour((db - 10) / 40), `${db} dB`]).concat([[colourOf("plain"), "not measured"]]),
    time: [[scaleColour(0), "slowest"], [scaleColour(0.5), "a quarter of it"], [scaleColour(1), "no time"], [colourOf("plain"), "not measured"]],
    op: opTypes.slice(0, 10).map(op => [opColour(op), op]),
  }[mode];
  $("legend").replaceChildren(...entries.map(([colour, text]) => {
    const entry = element("span"), patch = element("i");
    patch.style.background = colour;
    entry.append(patch, text);
    return entry;
  }));
}

function colour(wanted) {
  mode = $("colour").value = wanted;
  legend();
  for (const pane of Object.values(panes)) pane.recolour();
}

// ---- views -----------------------------------------------------------------------------------

let selection = null;
const events = {picked: (pane, box) => choose(pane, box), hover, moved: follow, painted};
const panes = {left: new Pane($("left"), data.views, colouring, events), right: new Pane($("right"), data.views, colouring, events)};
const sideOf = pane => (pane === panes.left ? "left" : "right");
const other = pane => (pane === panes.left ? panes.right : panes.left);
const number = (value, unit) => (value === null ? "not measured" : `${value.toFixed(1)} ${unit}`);

function painted() {
  if (lucidReport.ready === null) lucidReport.ready = performance.now();
}

function show(side, title) {
  const pane = panes[side];
  pane.show(title, Number($("collapse").value || 0));
  $(`view-${side}`).value = title;
  const {boxes, view} = pane;
  $(`count-${side}`).textContent = boxes.length === view.nodes.length ? `${boxes.length} nodes` : `${boxes.length} boxes of ${view.nodes.length} nodes`;
}

function collapse(depth) {
  const depths = [...$("collapse").options].map(option => Number(option.value));
  $("collapse").value = String(Math.max(...depths.filter(d => d <= depth)));
  const kept = selection && [selection.side, selection.box.nodes[0].name];
  for (const side of ["left", "right"]) show(side, panes[side].view.title);
  if (kept) select(...kept);
}

/** Select a box and show its partners in the other view; both come into the middle if asked. */
function choose(pane, box, bring = false) {
  const partner = other(pane);
  selection = box ? {side: sideOf(pane), box} : null;
  const partners = box ? partner.sharing(box.origins) : [];
  pane.mark(box ? [box] : [], box);
  partner.mark(partners, null);
  if (bring && box) pane.bring([box]);
  if (partners.length) {  // the first partner goes where the box is
    if ($("linked").checked) partner.scale = pane.scale;
    partner.x = partners[0].x + pane.x - box.x;
    partner.y = partners[0].y + pane.y - box.y;
    partner.draw();
  }
  tell(pane, box);
}

function tell(pane, box) {
  const panel = $("panel");
  if (!box) { panel.replaceChildren(element("p", "Select a node: its partners in the other view are marked.", "quiet")); return; }
  const one = box.nodes[0], single = box.nodes.length === 1, lines = [];
  const status = box.status ? box.status.replace("_", " ") : "not in the ledger";
  lines.push(`${status}; own SQNR ${number(box.error, "dB")}; time ${number(box.time, "µs")}`);
  const rows = data.ledger.filter(row => box.origins.has(row.node));
  for (const row of rows.slice(0, 6)) lines.push(`${row.node} (${row.op_type}): ${row.status}: ${row.reason}`);
  if (rows.length > 6) lines.push(`and ${rows.length - 6} more source nodes`);
  lines.push(...(single ? one.about : [`${box.nodes.length} nodes`]));
  const partners = [...other(pane).marked].map(b => b.name);
  lines.push(partners.length ? `in ${other(pane).view.title}: ${partners.slice(0, 12).join(", ")}` : `nothing in ${other(pane).view.title} stands for it`);
  panel.replaceChildren(element("h3", single ? `${one.op} ${box.name}` : box.name), ...lines.map(line => element("p", line)));
}

function select(side, name) {
  const box = panes[side].find(name) ?? panes[side].sharing(new Set([name]))[0];
  if (box) choose(panes[side], box, true);
  return Boolean(box);
}

/** Select a node wherever it is: on the left, on the right, or in a view that gets shown. */
function selectAnywhere(name) {
  if (select("left", name) || select("right", name)) return true;
  const view = data.views.find(v => v.nodes.some(n => n.name === name));
  if (view) { show("right", view.title); return select("right", name); }
  return false;
}

let anchored = {};

/** Boxes of a pane that have a partner in the other one, with that partner. */
function anchors(pane) {
  const partner = other(pane);
  if (anchored.of !== pane.boxes || anchored.to !== partner.boxes) {
    const twins = new Map();
    for (const box of partner.boxes) for (const origin of box.origins) if (!twins.has(origin)) twins.set(origin, box);
    const pairs = pane.boxes.map(box => [box, twins.get([...box.origins].find(o => twins.has(o)))]);
    anchored = {of: pane.boxes, to: partner.boxes, pairs: pairs.filter(([, twin]) => twin)};
  }
  return anchored.pairs;
}

/** Move the other view so that partners of what is in the middle here are at the same places. */
function follow(pane) {
  if (!$("linked").checked) return;
  const partner = other(pane), far = box => Math.abs(box.x - pane.x) + 2 * Math.abs(box.y - pane.y);
  let near = null, least = Infinity;
  for (const pair of anchors(pane)) if (far(pair[0]) < least) { least = far(pair[0]); near = pair; }
  partner.scale = pane.scale;
  if (near) { partner.x = near[1].x + pane.x - near[0].x; partner.y = near[1].y + pane.y - near[0].y; }
  partner.draw();
}

function hover(pane, box, event) {
  const tip = $("tip");
  tip.hidden = !box;
  pane.canvas.style.cursor = box ? "pointer" : "grab";
  if (!box) return;
  tip.textContent = `${box.label}  ${box.name}\n${box.status.replace("_", " ") || "not in the ledger"} · own SQNR ${number(box.error, "dB")} · time ${number(box.time, "µs")}`;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 330)}px`;
  tip.style.top = `${event.clientY + 16}px`;
}

// ---- tiles, lists, ledger --------------------------------------------------------------------

function link(name) {
  const made = element("button", name, "link");
  made.type = "button";
  made.addEventListener("click", () => selectAnywhere(name));
  return made;
}

/** A line of a table; picking it selects its node. */
function row(texts, node) {
  const line = element("tr");
  line.append(...texts.map(text => element("td", text)));
  line.tabIndex = 0;
  line.dataset.node = node;
  return line;
}

function texts() {
  $("title").textContent = data.title;
  $("subtitle").textContent = data.samples ? `measured on ${data.samples} samples` : "no samples were given: --data adds errors, times and histograms";
  $("tiles").replaceChildren(...data.tiles.map(([value, what]) => {
    const tile = element("div", undefined, "tile");
    tile.append(element("b", value), element("span", what));
    return tile;
  }));
  const listed = (id, items, empty) => $(id).replaceChildren(...(items.length ? items : [element("p", empty, "quiet")]));
  listed("culprits", data.culprits.map(one => {
    const item = element("li");
    item.append(link(one.node), ` (${one.op_type}), ${number(one.sqnr_db, "dB")}: ${one.reason}: ${one.text} `, element("span", `To change it: ${one.setting}`, "quiet"));
    return item;
  }), data.samples ? "Every layer on codes is healthy." : "Needs samples: --data.");
  listed("findings", data.findings.map(one => {
    const item = element("li");
    item.append(`${one.rule}: `, link(one.node), `: ${one.what} `, element("span", `Fix: ${one.fix}`, "quiet"));
    return item;
  }), "No findings.");
  $("rewrites").replaceChildren(...data.rewrites.slice(0, ROWS).map(one => row([one.kind, one.before, one.after, one.count, one.node, one.passes], one.node)));
  $("notes").replaceChildren(...data.notes.map(note => element("li", note)));
}

function ledger() {
  const wanted = $("filter").value.toLowerCase(), status = $("status").value;
  const columns = row => [row.node, row.op_type, row.status, row.reason, row.pass_name];
  const found = data.ledger.filter(row => (!status || row.status === status) && columns(row).join("\n").toLowerCase().includes(wanted));
  $("matches").textContent = `${found.length} of ${data.ledger.length} nodes` + (found.length > ROWS ? `, the first ${ROWS} are shown` : "");
  $("ledger").replaceChildren(...found.slice(0, ROWS).map(one => {
    const line = row(columns(one), one.node), patch = element("i");
    patch.style.background = `var(--${one.status})`;
    line.children[2].prepend(patch);
    return line;
  }));
}

function pickRow(event) {
  const line = event.target.closest("tr");
  if (!line || (event.type === "keydown" && event.key !== "Enter")) return;
  for (const old of document.querySelectorAll("tr.picked")) old.classList.remove("picked");
  line.classList.add("picked");
  selectAnywhere(line.dataset.node);
}

// ---- charts ----------------------------------------------------------------------------------

const plain = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");

function plot(id, traces, layout, empty) {
  if (!traces.some(t => t.x.length)) { $(id).replaceChildren(element("p", empty, "quiet")); return; }
  const axis = {gridcolor: colourOf("line"), zerolinecolor: colourOf("line"), automargin: true};
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {color: colourOf("text"), family: "system-ui, Arial, sans-serif"},
    margin: {t: 30, r: 10, b: 40, l: 60}, height: 320, legend: {orientation: "h", y: 1.15}, hovermode: "closest", ...layout,
  };
  for (const key of ["xaxis", "yaxis"]) base[key] = {...axis, ...layout[key]};
  Plotly.react(id, traces, base, {responsive: true, displayModeBar: false});
  $(id).on("plotly_click", click => { const name = click.points[0].data.names?.[click.points[0].pointIndex]; if (name) selectAnywhere(name); });
}

function byLayer(id, series, unit, title, empty) {
  const traces = series.map(([name, rows, key, type, color]) => ({
    name, type, mode: "lines+markers", connectgaps: true, marker: {color, size: 5}, line: {color, width: 1.5},
    x: rows.map((_, i) => i), y: rows.map(row => row[key]), names: rows.map(row => row.node ?? row.name),
    text: rows.map(row => plain(row.node || row.name || "graph input")), hovertemplate: `%{text}: %{y:.1f} ${unit}<extra>${name}</extra>`,
  }));
  plot(id, traces, {xaxis: {title: {text: "layers, in the order of the graph"}}, yaxis: {title: {text: title}}}, empty);
}

const needs = "Needs samples: give --data DATA.npz.";
const charts = {
  errors: () => byLayer("errors", [["the layer by itself", data.errors, "own", "scatter", colourOf("pick")], ["all before it included", data.errors, "all", "scatter", colourOf("pair")]],
    "dB", "signal to noise, dB (more is better)", needs),
  layers: () => byLayer("layers", [["quantized, as onnxruntime runs it", data.views.at(-1).nodes.filter(n => n.time !== null), "time", "bar", colourOf("pick")]], "µs", "µs a run", needs),
  times: () => {
    const bars = name => ({name, type: "bar", x: data.times.ops.map(plain), y: data.times[name], marker: {color: colourOf(name)}, hovertemplate: "%{x}: %{y:.1f} µs"});
    plot("times", [bars("float"), bars("quantized")], {barmode: "group", yaxis: {title: {text: "µs a run, by op type"}}}, "");
  },
  histograms,
};

/** Draw each chart when it first comes near the part of the page that is seen. */
function chartsWhenSeen() {
  const observer = new IntersectionObserver(entries => {
    for (const {target, isIntersecting} of entries) {
      if (!isIntersecting) continue;
      observer.unobserve(target);
      charts[target.id]();
      lucidReport.charted.push(target.id);
    }
  }, {rootMargin: "300px"});
  for (const id of Object.keys(charts)) observer.observe($(id));
}

function histograms() {
  const color = colourOf("pick"), all = data.histograms, columns = 4, rows = Math.ceil(all.length / columns), layout = {showlegend: false, height: 60 + 170 * rows, bargap: 0, annotations: [], shapes: [],
    grid: {rows, columns, pattern: "independent", xgap: 0.12, ygap: 0.45}};
  const traces = all.map((one, i) => {
    const n = i ? i + 1 : "", axis = {gridcolor: colourOf("line"), nticks: 5, tickfont: {size: 10}};
    Object.assign(layout, {[`xaxis${n}`]: axis, [`yaxis${n}`]: {...axis, type: "log", nticks: 3}});
    layout.annotations.push({text: plain(clipped(one.tensor, 32)), xref: `x${n} domain`, yref: `y${n} domain`, x: 0, y: 1.02, xanchor: "left", yanchor: "bottom", showarrow: false, font: {size: 11}});
    for (const end of one.range ?? []) layout.shapes.push({type: "line", xref: `x${n}`, yref: `y${n} domain`, x0: end, x1: end, y0: 0, y1: 1, line: {color, width: 2}});
    return {type: "bar", x: one.x, y: one.counts, xaxis: `x${n}`, yaxis: `y${n}`, marker: {color: colourOf("quiet")}, hovertemplate: "%{x:.4g}: %{y}<extra></extra>"};
  });
  plot("histograms", traces, layout, needs);
}

// ---- start -----------------------------------------------------------------------------------

const lucidReport = window.lucidReport = {
  ready: null, charted: [], select, colour, collapse, show,
  selected: () => selection && {side: selection.side, name: selection.box.name},
  highlighted: side => [...panes[side].marked].map(box => box.name),
  shown: side => panes[side].boxes.map(box => box.name),
  place: side => ({x: panes[side].x, y: panes[side].y, scale: panes[side].scale}),
  paint: side => {  // milliseconds of a frame; reading a pixel waits until it is there
    const begin = performance.now();
    panes[side].paint();
    panes[side].context.getImageData(0, 0, 1, 1);
    return performance.now() - begin;
  },
};

function options(id, entries) {
  $(id).append(...entries.map(([value, text]) => { const made = element("option", text); made.value = value; return made; }));
}

function start() {
  const titles = data.views.map(v => [v.title, v.title]), depths = [...new Set(data.views.flatMap(v => v.levels.map(l => l.depth)))].sort((a, b) => a - b);
  options("collapse", depths.map(d => [d, d ? `scopes, ${d} deep` : "all nodes"]));
  options("status", [...new Set(data.ledger.map(row => row.status))].map(s => [s, s.replace("_", " ")]));
  texts(); ledger(); colour("status");
  for (const [side, title] of [["left", "float"], ["right", "quantized"]]) {
    options(`view-${side}`, titles);
    show(side, title);
    $(`view-${side}`).addEventListener("change", e => { show(side, e.target.value); if (selection) select(selection.side, selection.box.name); });
    $(`fit-${side}`).addEventListener("click", () => panes[side].fit());
    $(`start-${side}`).addEventListener("click", () => panes[side].start());
  }
  $("colour").addEventListener("change", e => colour(e.target.value));
  $("collapse").addEventListener("change", e => collapse(Number(e.target.value)));
  $("filter").addEventListener("input", ledger);
  $("status").addEventListener("change", ledger);
  for (const table of ["ledger", "rewrites"]) for (const kind of ["click", "keydown"]) $(table).addEventListener(kind, pickRow);
  $("search").addEventListener("input", search);
  tell(panes.left, null);
  addEventListener("load", chartsWhenSeen);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colour(mode); for (const id of lucidReport.charted) charts[id](); });
}

function search() {
  const text = $("search").value.toLowerCase();
  if (!text) return;
  const found = data.views.flatMap(v => v.nodes).filter(n => `${n.op} ${n.name}`.toLowerCase().includes(text));
  const names = [...new Set(found.map(n => n.name))];
  $("found").replaceChildren(...names.slice(0, 20).map(name => { const made = element("option"); made.value = name; return made; }));
  if (names.length) selectAnywhere(names.find(name => name.toLowerCase() === text) ?? names[0]);
}

start();
