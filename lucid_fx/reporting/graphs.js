// The graph views: drawn on canvases, linked by the source nodes that their boxes stand for.
"use strict";

const W = 132, H = 56, BOX_W = 116, BOX_H = 30, STRIP = 34, TEXT = "system-ui, 'Noto Sans', Arial, sans-serif";
const STATUSES = ["refused", "float", "quantized", "fused", "passed_through", ""];

const colourOf = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;

/** A colour between bad (0) and good (1). */
function scaleColour(share) {
  const hue = 10 + 200 * Math.min(1, Math.max(0, share));
  return `hsl(${hue} ${dark() ? 55 : 70}% ${dark() ? 36 : 72}%)`;
}

/** Boxes of a level with what their members say together; made when a level is first shown. */
function boxesOf(view, level) {
  if (level.boxes) return level.boxes;
  level.boxes = level.members.map((members, i) => {
    const nodes = members.map(m => view.nodes[m]);
    const known = key => nodes.map(n => n[key]).filter(v => v !== null && v !== undefined);
    const single = nodes.length === 1, [x, y] = level.places[i];
    return {
      name: level.names[i], label: single ? nodes[0].op : `${level.names[i].split("/").pop()} · ${nodes.length}`,
      op: single ? nodes[0].op : "scope", nodes, x: x * W, y: y * H,
      origins: new Set(nodes.flatMap(n => n.origins)),
      status: STATUSES.find(s => nodes.some(n => n.status === s)) ?? "",
      error: known("error").length ? Math.min(...known("error")) : null,
      time: known("time").length ? known("time").reduce((a, b) => a + b, 0) : null,
    };
  });
  return level.boxes;
}

/** One canvas with one view of the model. */
class Pane {
  constructor(canvas, views, colouring, events) {
    Object.assign(this, {canvas, views, colouring, events, scale: 1, x: 0, y: 0, marked: new Set(), picked: null});
    this.context = canvas.getContext("2d");
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.listen();
  }

  show(title, depth) {
    this.view = this.views.find(v => v.title === title);
    this.level = this.view.levels.findLast(l => l.depth <= depth);
    this.boxes = boxesOf(this.view, this.level);
    const xs = this.boxes.map(b => b.x), ys = this.boxes.map(b => b.y);
    const least = list => list.reduce((a, b) => Math.min(a, b), Infinity), most = list => list.reduce((a, b) => Math.max(a, b), -Infinity);
    this.bounds = xs.length ? [least(xs), least(ys), most(xs), most(ys)] : [0, 0, 0, 0];
    this.slowest = Math.max(1e-9, most(this.boxes.map(b => b.time ?? 0)));
    this.strip = null;
    this.mark([], null);
    this.start();
  }

  resize() {
    const ratio = devicePixelRatio || 1, {clientWidth, clientHeight} = this.canvas;
    this.canvas.width = clientWidth * ratio; this.canvas.height = clientHeight * ratio;
    this.strip = null;
    this.draw();
  }

  get width() { return this.canvas.clientWidth - STRIP; }
  get height() { return this.canvas.clientHeight; }

  /** The top of the graph, at a size that can be read. */
  start() {
    const first = this.boxes.reduce((a, b) => (b.y < a.y ? b : a), this.boxes[0] ?? {x: 0, y: 0});
    Object.assign(this, {scale: 0.9, x: first.x, y: first.y + 0.45 * this.height / 0.9});
    this.draw();
  }

  /** The whole graph, or all of its width where its boxes would be too small to see. */
  fit() {
    const [left, top, right, bottom] = this.bounds, across = this.width / (right - left + 1.5 * W);
    this.scale = Math.min(across, Math.max(this.height / (bottom - top + 1.5 * H), 0.1), 1.5);
    Object.assign(this, {x: (left + right) / 2, y: (top + bottom) / 2});
    this.draw();
  }

  /** Bring boxes into view: their middle in the middle. */
  bring(boxes) {
    if (!boxes.length) return;
    this.x = boxes.reduce((sum, b) => sum + b.x, 0) / boxes.length;
    this.y = boxes.reduce((sum, b) => sum + b.y, 0) / boxes.length;
    this.draw();
  }

  mark(boxes, picked) { this.marked = new Set(boxes); this.picked = picked; this.draw(); }
  find(name) { return this.boxes.find(b => b.name === name) ?? this.boxes.find(b => b.nodes.some(n => n.name === name)); }
  sharing(origins) { return this.boxes.filter(b => { for (const o of b.origins) if (origins.has(o)) return true; return false; }); }
  toGraph(px, py) { return [(px - this.width / 2) / this.scale + this.x, (py - this.height / 2) / this.scale + this.y]; }

  at(px, py) {
    const [x, y] = this.toGraph(px, py);
    return this.boxes.find(b => Math.abs(b.x - x) <= BOX_W / 2 && Math.abs(b.y - y) <= BOX_H / 2);
  }

  zoom(factor, px, py) {
    const [x, y] = this.toGraph(px, py);
    this.scale = Math.min(4, Math.max(0.01, this.scale * factor));
    const [newX, newY] = this.toGraph(px, py);
    this.x += x - newX; this.y += y - newY;
    this.moved();
  }

  moved() { this.draw(); this.events.moved(this); }
  recolour() { this.strip = null; this.draw(); }

  draw() {
    if (this.waiting || !this.boxes) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  paint() {
    const c = this.context, ratio = devicePixelRatio || 1, s = this.scale;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, this.canvas.clientWidth, this.height);
    c.save();
    c.beginPath(); c.rect(0, 0, this.width, this.height); c.clip();
    c.translate(this.width / 2 - this.x * s, this.height / 2 - this.y * s); c.scale(s, s);
    const [left, top] = this.toGraph(0, 0), [right, bottom] = this.toGraph(this.width, this.height);
    this.paintEdges(left, top, right, bottom);
    this.paintBoxes(left - BOX_W / 2, top - BOX_H / 2, right + BOX_W / 2, bottom + BOX_H / 2);
    c.restore();
    this.paintStrip(top, bottom);
    this.events.painted();
  }

  paintEdges(left, top, right, bottom) {
    const c = this.context, {boxes} = this, curved = this.scale > 0.25;
    const path = wanted => {
      c.beginPath();
      for (const [from, to] of this.level.edges) {
        const a = boxes[from], b = boxes[to];
        if (wanted !== (a === this.picked || b === this.picked)) continue;
        if (Math.max(a.x, b.x) < left || Math.min(a.x, b.x) > right || Math.max(a.y, b.y) < top || Math.min(a.y, b.y) > bottom) continue;
        const y1 = a.y + BOX_H / 2, y2 = b.y - BOX_H / 2, bend = Math.min(H, Math.abs(y2 - y1) / 2 + 4);
        c.moveTo(a.x, y1);
        if (curved && a.x !== b.x) c.bezierCurveTo(a.x, y1 + bend, b.x, y2 - bend, b.x, y2); else c.lineTo(b.x, y2);
      }
      c.stroke();
    };
    c.lineWidth = Math.max(1.2, 0.6 / this.scale); c.strokeStyle = colourOf("edge"); path(false);
    if (this.picked) { c.lineWidth *= 2; c.strokeStyle = colourOf("pick"); path(true); }
  }

  paintBoxes(left, top, right, bottom) {
    const c = this.context, legible = this.scale > 0.42, [text, quiet] = [colourOf("text"), colourOf("quiet")];
    const fill = this.colouring(this);
    c.textAlign = "center"; c.textBaseline = "middle";
    for (const box of this.boxes) {
      if (box.x < left || box.x > right || box.y < top || box.y > bottom) continue;
      c.fillStyle = fill(box);
      c.fillRect(box.x - BOX_W / 2, box.y - BOX_H / 2, BOX_W, BOX_H);
      if (box === this.picked || this.marked.has(box)) this.outline(box);
      if (!legible) continue;
      c.fillStyle = text; c.font = `12px ${TEXT}`;
      const named = this.scale > 0.7 && box.name && box.nodes.length === 1;
      c.fillText(clipped(box.label, 18), box.x, box.y - (named ? 6 : 0), BOX_W - 6);
      if (!named) continue;
      c.fillStyle = text; c.globalAlpha = 0.75; c.font = `9px ${TEXT}`;
      c.fillText(clipped(box.name, 26), box.x, box.y + 8, BOX_W - 6);
      c.globalAlpha = 1;
    }
  }

  outline(box) {
    const c = this.context, wide = Math.max(3, 2.5 / this.scale);
    c.lineWidth = wide; c.strokeStyle = colourOf(box === this.picked ? "pick" : "pair");
    c.strokeRect(box.x - BOX_W / 2 - wide / 2, box.y - BOX_H / 2 - wide / 2, BOX_W + wide, BOX_H + wide);
  }

  /** The whole graph squeezed into a strip, with the part that is shown. */
  paintStrip(top, bottom) {
    const c = this.context, ratio = devicePixelRatio || 1, place = y => 4 + (this.height - 8) * (y - this.bounds[1] + H / 2) / (this.bounds[3] - this.bounds[1] + H);
    if (!this.strip) {
      this.strip = new OffscreenCanvas(Math.max(1, STRIP * ratio), Math.max(1, this.height * ratio));
      const s = this.strip.getContext("2d"), fill = this.colouring(this), span = Math.max(1, this.bounds[2] - this.bounds[0]);
      s.scale(ratio, ratio); s.fillStyle = colourOf("card"); s.fillRect(0, 0, STRIP, this.height);
      const tall = Math.max(1.5, Math.min(6, 0.8 * (place(H) - place(0))));
      for (const box of this.boxes) {
        s.fillStyle = fill(box);
        s.fillRect(4 + (STRIP - 12) * (box.x - this.bounds[0]) / span, place(box.y) - tall / 2, 5, tall);
      }
    }
    c.drawImage(this.strip, this.width, 0, STRIP, this.height);
    c.fillStyle = colourOf("pick");
    for (const box of this.marked) c.fillRect(this.width, place(box.y) - 1.5, STRIP, 3);
    c.strokeStyle = colourOf("text"); c.lineWidth = 1;
    const from = Math.max(1, place(top)), to = Math.min(this.height - 1, place(bottom));
    if (to > from) c.strokeRect(this.width + 1, from, STRIP - 2, Math.max(3, to - from));
  }

  jump(py) {
    const [, top, , bottom] = this.bounds, y = (py - 4) / (this.height - 8) * (bottom - top + H) + top - H / 2;
    const near = this.boxes.reduce((a, b) => (Math.abs(b.y - y) < Math.abs(a.y - y) ? b : a), this.boxes[0]);
    if (near) { this.x = near.x; this.y = y; this.moved(); }
  }

  listen() {
    const {canvas} = this;
    let last = null, far = 0;
    canvas.addEventListener("pointerdown", e => {
      canvas.setPointerCapture(e.pointerId);
      last = [e.offsetX, e.offsetY]; far = 0;
      this.jumping = e.offsetX > this.width;
      if (this.jumping) this.jump(e.offsetY);
    });
    canvas.addEventListener("pointermove", e => {
      if (!last) { this.events.hover(this, this.at(e.offsetX, e.offsetY), e); return; }
      if (this.jumping) { this.jump(e.offsetY); return; }
      const dx = e.offsetX - last[0], dy = e.offsetY - last[1];
      far += Math.abs(dx) + Math.abs(dy); last = [e.offsetX, e.offsetY];
      this.x -= dx / this.scale; this.y -= dy / this.scale;
      this.moved();
    });
    canvas.addEventListener("pointerup", e => {
      if (last && far < 5 && !this.jumping) this.events.picked(this, this.at(e.offsetX, e.offsetY));
      last = null;
    });
    canvas.addEventListener("pointerleave", () => this.events.hover(this, null, null));
    canvas.addEventListener("wheel", e => {
      e.preventDefault();
      this.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), e.offsetX, e.offsetY);
    }, {passive: false});
    canvas.addEventListener("keydown", e => {
      const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[e.key];
      if (step) { this.x += step[0] * 80 / this.scale; this.y += step[1] * 80 / this.scale; this.moved(); e.preventDefault(); }
      if (e.key === "+" || e.key === "-") this.zoom(e.key === "+" ? 1.25 : 0.8, this.width / 2, this.height / 2);
    });
  }
}

function clipped(text, most) { return text.length > most ? `…${text.slice(1 - most)}` : text; }
