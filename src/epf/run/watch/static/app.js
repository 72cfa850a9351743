"use strict";
// The page of a stream: keeps the track, and shows it with the numbers of now. live.js brings both.

const SECTIONS = ["parameters", "observations", "states", "run"];
const SMALLEST = 0, LARGEST = 1, LAST = 2;
let track = null, charts = [];

function decoded(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float64Array(bytes.buffer);
}

function take(part) {
  const times = decoded(part.times), rows = decoded(part.rows);
  if (part.columns) {
    const place = new Map(part.columns.map((name, i) => [name, i]));
    const same = track && JSON.stringify(track.layout) === JSON.stringify(part.layout);
    track = { layout: part.layout, place, width: part.columns.length, times: [], rows: [], breaks: [], stride: 1 };
    if (!same) build();
  }
  const width = 3 * track.width;
  track.times.length = track.rows.length = part.first;
  for (let i = 0; i < times.length / 3; i++) {
    track.times.push(times.subarray(3 * i, 3 * i + 3));
    track.rows.push(rows.subarray(width * i, width * (i + 1)));
  }
  track.breaks = part.breaks;
  track.stride = part.stride;
}

function clear() {
  charts.forEach((one) => one.chart.remove());
  charts = [];
  return SECTIONS.map((id) => {
    const list = find(id).querySelector(".list");
    list.replaceChildren();
    return list;
  });
}

// A stream without a history is another one than before.
function forget() {
  clear();
  [...SECTIONS, "gaps"].forEach((id) => { find(id).hidden = true; });
  track = null;
}

// The values of a column, null where there is none: the smallest, largest or last of each bucket.
function column(name, which, indices) {
  const place = which * track.width + track.place.get(name);
  return indices.map((i) => {
    const value = track.rows[i][place];
    return Number.isNaN(value) ? null : value;
  });
}

function there(name) {
  const place = LAST * track.width + track.place.get(name), found = [];
  track.rows.forEach((row, i) => { if (!Number.isNaN(row[place])) found.push(i); });
  return found;
}

const steps = (indices) => indices.map((i) => track.times[i][1]);
const breaks = () => (track ? track.breaks.map((gap) => gap[0] + 0.5) : []);

function when(i) {
  const [first, last] = track.times[i];
  return first === last ? `t = ${last}` : `t = ${first} to ${last}`;
}

// The charts of one kind of track, made once; `refresh` gives them their data.
function build() {
  const lists = clear();
  const { parameters, states, observations, levels } = track.layout;
  parameters.forEach((label, i) => parameterCharts(lists[0], label, i, levels));
  for (let i = 0; i < observations; i++) observationChart(lists[1], i, observations);
  for (let i = 0; i < states; i++) stateChart(lists[2], i, states);
  rangeChart(lists[3], "Effective particles", "ess", 1);
  rangeChart(lists[3], "Log-evidence of a step", "score", 1);
  rangeChart(lists[3], "Log-evidence in all", "log_evidence", 1);
  rangeChart(lists[3], "Milliseconds per update", "seconds", 1000);
}

function article(list, title) {
  const card = element("article", undefined, list), head = element("header", undefined, card);
  element("h3", title, head);
  return { card, note: element("p", "", head) };
}

// Pairs of levels around the median, the outermost first.
function pairs(levels) {
  return levels.filter((level) => level < 0.5).sort((a, b) => a - b)
    .map((low) => [low, levels.find((high) => Math.abs(low + high - 1) < 1e-6)])
    .filter(([, high]) => high !== undefined);
}

// Some columns have values at some steps only. Between those, `name` is taken to keep its place between the columns `from` and
// `to`, which have values at every step; its place is drawn from one to the next.
function between(name, from, to, which, indices) {
  const found = column(name, which, indices), a = column(from, LAST, indices), b = column(to, LAST, indices);
  const place = found.map((v, k) => (v === null || b[k] === a[k] ? null : Math.min(Math.max((v - a[k]) / (b[k] - a[k]), 0), 1)));
  const known = place.map((v, k) => (v === null ? -1 : k)).filter((k) => k >= 0);
  if (known.length === 0) return found;
  let next = 0;
  return found.map((v, k) => {
    while (next < known.length - 1 && known[next] < k) next++;
    const right = known[next], left = known[Math.max(next - 1, 0)];
    const share = k >= right || right === left ? 1 : Math.max(k - left, 0) / (right - left);
    const p = k <= left ? place[left] : place[left] + share * (place[right] - place[left]);
    return v === null && a[k] !== null && b[k] !== null ? a[k] + p * (b[k] - a[k]) : v;
  });
}

function bandSeries(count) {
  const made = [];
  for (let j = 0; j < count; j++) {
    made.push({ kind: "edge", fill: j + 1 < count || count === 1 ? "--band90" : "--band50" }, { kind: "edge" });
  }
  return made;
}

function bandWords(around, data, i, first) {
  return around.map(([low, high], j) =>
    `${format(100 * (high - low))}% ${format(data[first + 2 * j + 1][i])} .. ${format(data[first + 2 * j][i])}`).join(", ");
}

function parameterCharts(list, label, i, levels) {
  const { card, note } = article(list, label);
  const pair = element("div", undefined, card);
  pair.className = "pair";
  const around = pairs(levels), middle = levels.includes(0.5) ? `q0.5:${i}` : `mean:${i}`;
  const main = around.length ? `q${around[0][0]}:${i}` : `mean:${i}`;
  let indices = [];
  const history = new Chart(element("div", undefined, pair), {
    label: `Posterior of ${label} over time`, height: 190, breaks,
    series: [...bandSeries(around.length), { kind: "line" }],
    read: (k, data) => `${when(indices[k])}: median ${format(data[data.length - 1][k])}, ${bandWords(around, data, k, 1)}`,
  });
  const density = new Chart(element("div", undefined, pair), {
    label: `Density of ${label} now`, height: 190, axis: false,
    range: (u, low, high) => [0, high > 0 ? 1.08 * high : 1],
    series: [{ kind: "line", fill: "--band90" }, { kind: "edge" }],
    read: (k, data) => `${label} = ${format(data[0][k])}: density ${format(data[1][k])}`,
  });
  charts.push({
    chart: history,
    refresh() {
      indices = there(main);
      const bands = around.flatMap(([low, high], j) => j === 0
        ? [column(`q${high}:${i}`, LARGEST, indices), column(`q${low}:${i}`, SMALLEST, indices)]
        : [between(`q${high}:${i}`, middle, `q${around[0][1]}:${i}`, LARGEST, indices),
          between(`q${low}:${i}`, middle, `q${around[0][0]}:${i}`, SMALLEST, indices)]);
      history.set([steps(indices), ...bands, column(middle, LAST, indices)]);
      const p = now.parameters[i];
      if (!p || p.label !== label) return;
      const band = p.quantiles, error = p.error_of_mean;
      const interval = band["0.05"] !== undefined ? `, 90% ${format(band["0.05"])} .. ${format(band["0.95"])}` : "";
      const off = error === null ? "error not measured"
        : `the mean may be off by ${format(Number(error.toPrecision(2)))} sds, the sd by ${Math.round(100 * p.error_of_sd)}%`;
      note.textContent = `mean ${format(p.mean)}, sd ${format(p.sd)}${interval}; ${off}`;
    },
  }, {
    chart: density,
    refresh() {
      const p = now.parameters[i];
      const curve = p && p.density;
      const fine = curve && curve.y.every((v) => v !== null) && curve.x[0] < curve.x[curve.x.length - 1];
      density.box.hidden = !fine;
      pair.style.gridTemplateColumns = fine ? "" : "minmax(0, 1fr)";
      if (fine) density.set([curve.x, curve.y, curve.y.map(() => 0)]);
    },
  });
}

function observationChart(list, i, count) {
  const { card } = article(list, count === 1 ? "y" : `y ${i + 1}`);
  const levels = [[0.05, 0.95], [0.25, 0.75]];
  let indices = [];
  const chart = new Chart(element("div", undefined, card), {
    label: "Observations over time with one-step forecasts; triangles mark surprises", height: 240, breaks,
    series: [{ kind: "edge", interval: "--band90", to: 1 }, { kind: "edge" }, { kind: "edge", interval: "--band50", to: 3 },
      { kind: "edge" }, { kind: "edge", interval: "--line", to: 4 }, { kind: "dots", range: true }, { kind: "dots" },
      { kind: "triangles" }, { kind: "triangles" }],
    read(k, data) {
      const [low, high] = [data[6][k], data[7][k]];
      const seen = low === null ? "missing" : low === high ? format(low) : `${format(low)} .. ${format(high)}`;
      const ahead = data[5][k] === null ? "" : `; forecast ${format(data[5][k])}, ${bandWords(levels, data, k, 1)}`;
      return `${when(indices[k])}: observed ${seen}${ahead}${data[8][k] === null ? "" : "; a surprise"}`;
    },
  });
  charts.push({
    chart,
    refresh() {
      indices = track.rows.map((_, k) => k);
      const bands = levels.flatMap(([low, high]) => [
        column(`f${high}:${i}`, LARGEST, indices), column(`f${low}:${i}`, SMALLEST, indices)]);
      chart.set([steps(indices), ...bands, column(`f0.5:${i}`, LAST, indices), column(`y:${i}`, SMALLEST, indices),
        column(`y:${i}`, LARGEST, indices), column(`surprise:${i}`, SMALLEST, indices),
        column(`surprise:${i}`, LARGEST, indices)]);
    },
  });
}

function stateChart(list, i, count) {
  const { card } = article(list, count === 1 ? "x" : `x ${i + 1}`);
  let indices = [];
  const chart = new Chart(element("div", undefined, card), {
    label: "State over time", height: 190, breaks,
    series: [...bandSeries(1), { kind: "line" }],
    read: (k, data) => `${when(indices[k])}: mean ${format(data[3][k])}, 90% ${format(data[2][k])} .. ${format(data[1][k])}`,
  });
  charts.push({
    chart,
    refresh() {
      indices = there(`state_mean:${i}`);
      const mean = (which) => column(`state_mean:${i}`, which, indices), sd = column(`state_sd:${i}`, LAST, indices);
      const edge = (sign, which) => mean(which).map((m, k) => m + sign * 1.645 * (sd[k] ?? 0));
      chart.set([steps(indices), edge(1, LARGEST), edge(-1, SMALLEST), mean(LAST)]);
    },
  });
}

function rangeChart(list, title, name, factor) {
  const { card } = article(list, title);
  let indices = [];
  const chart = new Chart(element("div", undefined, card), {
    label: `${title} over time`, height: 150, breaks,
    series: [...bandSeries(1), { kind: "line" }],
    read: (k, data) => `${when(indices[k])}: ${format(data[3][k])} (${format(data[2][k])} .. ${format(data[1][k])})`,
  });
  charts.push({
    chart,
    refresh() {
      indices = there(name);
      card.hidden = indices.length === 0;
      const scaled = (which) => column(name, which, indices).map((v) => (v === null ? null : v * factor));
      chart.set([steps(indices), scaled(LARGEST), scaled(SMALLEST), scaled(LAST)]);
    },
  });
}

function tile(name, value, unit) {
  const box = element("div"), term = element("dt", name, box), text = element("dd", value, box);
  if (unit) { text.append(" "); element("small", unit, text); }
  return term.parentNode;
}

function show() {
  const title = now.file ? `${now.model} in ${now.file}` : now.model;
  find("title").textContent = title || "epf watch";
  document.title = `${title || "epf watch"}: t = ${now.t}`;
  find("method").textContent = now.method ? `learned with ${now.method}` : "";
  find("trouble").hidden = !now.trouble;
  find("trouble").textContent = now.trouble || "";
  find("empty").hidden = now.t > 0;
  const verdict = now.verdict;
  find("verdict").hidden = !verdict;
  if (verdict) {
    const signs = ["✓", "?", "✕"];
    find("verdict").dataset.level = verdict.level;
    find("verdict-word").textContent = `${signs[verdict.level]} ${verdict.word[0].toUpperCase()}${verdict.word.slice(1)}`;
    find("reasons").replaceChildren(...verdict.reasons.map(([, sentence]) => element("li", sentence)));
  }
  const tiles = [tile("Observations", Number(now.t).toLocaleString("en"))];
  if (now.live) tiles.push(tile("Updates per second", format(now.per_second)));
  if (now.seconds !== undefined && now.seconds !== null) tiles.push(tile("Latency", format(1000 * now.seconds), "ms"));
  if (now.ess !== undefined && now.ess !== null) {
    tiles.push(tile("Effective particles", format(Math.round(now.ess)), now.particles ? `of ${now.particles}` : ""));
  }
  if (now.log_evidence !== undefined) tiles.push(tile("Log-evidence", format(now.log_evidence)));
  if (now.surprises !== undefined) tiles.push(tile("Surprises", String(now.surprises)));
  find("tiles").replaceChildren(...tiles);
  if (!track) return;
  const { parameters, states, observations } = track.layout;
  find("parameters").hidden = parameters.length === 0;
  find("observations").hidden = observations === 0;
  find("states").hidden = states === 0;
  find("run").hidden = false;
  find("gaps").hidden = track.breaks.length === 0;
  find("gaps").textContent = `A dashed line: the stream stood still there, ${
    track.breaks.map(([t, seconds]) => `for ${since(seconds)} after t = ${t}`).join(", ")}.`;
  charts.forEach((one) => one.refresh());
  const more = now.parameters.length - parameters.length;
  document.querySelector("#parameters h2").textContent = more > 0 ? `Parameters (${more} more in posterior.json)` : "Parameters";
}

let waiting = false;
function later() {
  if (waiting) return;
  waiting = true;
  setTimeout(() => { waiting = false; show(); }, 0);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((one) => one.chart.theme()));
listen((message) => {
  if (message.track) take(message.track);
  else forget();
  later();
});
