"use strict";
// One chart: bands, lines, dots and triangles over x, drawn by uPlot, read with the mouse or the arrow keys.
/* exported Chart, format */

function format(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

class Chart {
  // A series is {name, kind: "line" | "dots" | "triangles" | "edge", fill}; an "edge" is drawn only as the border of a band
  // to the series after it, or of intervals of single steps to the series number `to`. `read(i)` says in words what is at the i-th place.
  constructor(box, options) {
    this.box = box;
    this.options = options;
    this.data = null;
    this.zoomed = false;
    this.visible = true;
    this.dirty = false;
    this.plot = null;
    box.className = "chart";
    box.tabIndex = 0;
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", options.label);
    this.place = document.createElement("div");
    this.readout = document.createElement("p");
    this.readout.className = "readout";
    this.readout.setAttribute("aria-live", "polite");
    box.append(this.place, this.readout);
    box.addEventListener("keydown", (event) => this.key(event));
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(box);
    this.seen = new IntersectionObserver((entries) => {
      this.visible = entries[entries.length - 1].isIntersecting;
      if (this.visible && this.dirty) this.draw();
    }, { rootMargin: "200px" });
    this.seen.observe(box);
  }

  build() {
    if (this.plot) this.plot.destroy();
    const ink = colour("--quiet"), grid = colour("--grid"), line = colour("--line");
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 4 } };
    const kinds = {
      line: { stroke: line, width: 1.75, points: { show: (u) => u.data[0].length === 1, size: 7, width: 0, fill: line } },
      dots: { stroke: colour("--dot"), paths: () => null, points: { show: true, size: 4, width: 0, fill: colour("--dot") } },
      triangles: { stroke: colour("--mark"), paths: () => null, points: { show: false } },
      edge: { stroke: "transparent", width: 0, points: { show: false } },
    };
    const series = [{}], bands = [];
    this.options.series.forEach((one, i) => {
      series.push({ label: String(i), spanGaps: true, ...kinds[one.kind] });
      if (one.fill) bands.push({ series: [i + 1, i + 2], fill: colour(one.fill) });
    });
    const values = (u, splits) => splits.map((v) => format(v));
    this.plot = new uPlot({
      width: Math.max(this.box.clientWidth, 50),
      height: this.options.height,
      series, bands,
      legend: { show: false },
      scales: { x: { time: false }, y: { range: this.options.range || padded } },
      axes: [{ ...axis, values, size: 26, space: 60 }, { ...axis, values, size: 58, space: 36, show: this.options.axis !== false }],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, dist: 5 } },
      padding: [8, 12, 0, this.options.axis === false ? 12 : 0],
      hooks: {
        setCursor: [(u) => this.read(u.cursor.idx)],
        setSelect: [(u) => { if (u.select.width > 0) this.zoomed = true; }],
        drawAxes: [(u) => this.under(u)],
        draw: [(u) => this.over(u)],
      },
    }, this.data, this.place);
    this.plot.over.addEventListener("dblclick", () => { this.zoomed = false; });
  }

  set(data) {
    this.data = data;
    this.dirty = true;
    if (this.visible) this.draw();
  }

  draw() {
    this.dirty = false;
    if (!this.data) return;
    if (!this.plot) { this.build(); return; }
    const { min, max } = this.plot.scales.x;
    this.plot.setData(this.data, !this.zoomed);
    if (this.zoomed) this.plot.setScale("x", { min, max });
  }

  theme() {
    if (this.plot) { this.build(); }
  }

  resize() {
    const width = this.box.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.options.height });
  }

  // Intervals of single steps, from one series to the next: where steps between have none, no line may suggest that they do.
  under(u) {
    const ratio = devicePixelRatio || 1, context = u.ctx, { left, top, width, height } = u.bbox;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    context.lineWidth = Math.max(3 * ratio, 0.8 * width / Math.max(u.data[0].length, 1));
    this.options.series.forEach((one, i) => {
      if (!one.interval) return;
      context.strokeStyle = colour(one.interval);
      context.beginPath();
      u.data[i + 1].forEach((high, k) => {
        const low = u.data[one.to + 1][k];
        if (high === null || low === null) return;
        const x = u.valToPos(u.data[0][k], "x", true), end = u.valToPos(low, "y", true);
        context.moveTo(x, Math.min(u.valToPos(high, "y", true), end - ratio));
        context.lineTo(x, Math.max(end, end + (one.to === i ? ratio : 0)));
      });
      context.stroke();
    });
    context.restore();
  }

  // What uPlot has no word for: triangles, ranges of dots, and the places where the stream stood still.
  over(u) {
    const ratio = devicePixelRatio || 1, context = u.ctx;
    const at = (x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
    const { left, top, width, height } = u.bbox;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    this.options.series.forEach((one, i) => {
      const values = u.data[i + 1];
      if (one.range) {
        const other = u.data[i + 2];
        context.strokeStyle = colour("--dot");
        context.lineWidth = ratio;
        context.beginPath();
        values.forEach((v, k) => {
          if (v === null || other[k] === null || v === other[k]) return;
          context.moveTo(...at(u.data[0][k], v));
          context.lineTo(...at(u.data[0][k], other[k]));
        });
        context.globalAlpha = 0.35;
        context.stroke();
        context.globalAlpha = 1;
      }
      if (one.kind === "triangles") {
        context.fillStyle = colour("--mark");
        context.strokeStyle = colour("--card");
        context.lineWidth = ratio;
        values.forEach((v, k) => {
          if (v === null) return;
          const [x, y] = at(u.data[0][k], v), r = 6 * ratio;
          context.beginPath();
          context.moveTo(x, y - r);
          context.lineTo(x + r, y + 0.8 * r);
          context.lineTo(x - r, y + 0.8 * r);
          context.closePath();
          context.fill();
          context.stroke();
        });
      }
    });
    context.strokeStyle = colour("--quiet");
    context.lineWidth = ratio;
    context.setLineDash([4 * ratio, 4 * ratio]);
    for (const x of this.options.breaks ? this.options.breaks() : []) {
      const [place] = at(x, 0);
      context.beginPath();
      context.moveTo(place, top);
      context.lineTo(place, top + height);
      context.stroke();
    }
    context.restore();
  }

  read(i) {
    this.readout.textContent = i === null || i === undefined || !this.data ? "" : this.options.read(i, this.data);
  }

  key(event) {
    const u = this.plot;
    if (!u || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.data[0].length - 1, { min, max } = u.scales.x;
    const now = u.cursor.idx ?? last;
    const step = { ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - 10, PageDown: now + 10, Home: 0, End: last }[event.key];
    if (step !== undefined) {
      const i = Math.min(Math.max(step, 0), last);
      u.setCursor({ left: u.valToPos(this.data[0][i], "x"), top: 10 });
      this.read(i);
    } else if (event.key === "+" || event.key === "-") {
      const middle = this.data[0][now], factor = event.key === "+" ? 0.5 : 2, full = this.data[0];
      const low = Math.max(middle - (middle - min) * factor, full[0]);
      const high = Math.min(middle + (max - middle) * factor, full[last]);
      this.zoomed = low > full[0] || high < full[last];
      if (high > low) u.setScale("x", { min: low, max: high });
    } else if (event.key === "Escape") {
      this.zoomed = false;
      u.setData(this.data, true);
      u.setCursor({ left: -10, top: -10 });
    } else {
      return;
    }
    event.preventDefault();
  }

  remove() {
    this.sizes.disconnect();
    this.seen.disconnect();
    if (this.plot) this.plot.destroy();
    this.box.remove();
  }
}

function padded(u, low, high) {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const margin = 0.06 * (high - low) || 0.1 * Math.abs(high) || 1;
  return [low - margin, high + margin];
}
