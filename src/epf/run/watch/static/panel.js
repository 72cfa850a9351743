"use strict";
// The page of a panel: its table. live.js brings the numbers.

const SIGNS = ["✓", "?", "✕"], MUCH = 8;
let order = "verdict";

const format = (value) => (value === null || value === undefined ? "–" : String(Number(Number(value).toPrecision(4))));
const above = (value) => (value === null ? Infinity : value ?? 0);  // what is not finite is without bound
const orders = {
  verdict: (a, b) => b.level - a.level || above(b.error) - above(a.error),
  surprise: (a, b) => above(b.surprise) - above(a.surprise) || orders.verdict(a, b),
  key: (a, b) => String(a.key).localeCompare(String(b.key), "en", { numeric: true }),
};

function address(key) {
  const query = new URLSearchParams(location.search);
  query.set("series", JSON.stringify(key));
  return `/?${query}`;
}

function unusual(one) {
  if (one.set_aside) return "set aside";
  if (one.surprise === undefined || one.surprise === null) return "–";
  return `${one.surprise > MUCH ? "▲ " : ""}${format(Math.round(10 * one.surprise) / 10)}`;
}

function row(one) {
  const made = element("tr"), name = element("th", undefined, made), link = element("a", String(one.key), name);
  name.scope = "row";
  link.href = address(one.key);
  const verdict = element("td", `${SIGNS[one.level]} ${one.word}`, made);
  verdict.className = "word";
  verdict.dataset.level = one.level;
  element("td", format(one.error === null ? null : Number(one.error.toPrecision(2))), made);
  element("td", unusual(one), made).className = one.surprise > MUCH ? "much" : "";
  element("td", Number(one.t).toLocaleString("en"), made);
  one.mean.forEach((mean, i) => element("td", `${format(mean)} ± ${format(Number(one.sd[i]?.toPrecision(2)))}`, made));
  return made;
}

function tile(name, value) {
  const box = element("div");
  element("dt", name, box);
  element("dd", value, box);
  return box;
}

function show() {
  find("title").textContent = `${now.model}: ${now.series} series`;
  document.title = `${now.model}: ${now.series} series`;
  find("method").textContent = now.method ? `learned with ${now.method}` : "";
  find("trouble").hidden = !now.trouble;
  find("trouble").textContent = now.trouble || "";
  find("empty").hidden = now.series > 0;
  find("series").hidden = now.series === 0;
  find("tiles").replaceChildren(
    tile("Series", Number(now.series).toLocaleString("en")), tile("Doubtful", String(now.doubtful)),
    tile("Do not trust", String(now.not_to_trust)), tile("Updates", Number(now.updates).toLocaleString("en")),
    ...(now.live ? [tile("Observations per second", format(now.per_second))] : []));
  const head = element("tr");
  for (const name of ["series", "verdict", "error", "surprise", "observations", ...now.labels]) element("th", name, head).scope = "col";
  find("head").replaceChildren(head);
  const focused = document.activeElement && document.activeElement.closest("#rows") ? document.activeElement.href : null;
  find("rows").replaceChildren(...[...now.rows].sort(orders[order]).map(row));
  if (focused) [...find("rows").querySelectorAll("a")].find((a) => a.href === focused)?.focus({ preventScroll: true });
  const hidden = now.series - now.rows.length;
  find("more").textContent = hidden > 0 ? `${hidden} further series are neither among the worst nor among the most surprising.` : "";
}

for (const button of document.querySelectorAll("#sort button")) {
  button.addEventListener("click", () => {
    order = button.dataset.sort;
    for (const one of document.querySelectorAll("#sort button")) one.setAttribute("aria-pressed", String(one === button));
    if (now) show();
  });
}
listen(show);
