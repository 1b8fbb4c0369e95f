// The latency chart of a monitor: ranges, selectable lines, shaded outages, zoom by dragging, and a table.
// Below it are bars of the packets that pings lost.
import { announce, ask } from "./live.js";
import { full, shortDay, shortTime } from "./times.js";

const HEIGHT = 260;
const LOSS_HEIGHT = 72;
const KINDS = {
  mean: { title: "Mean", colour: "--chart-1", width: 2, shown: true },
  p50: { title: "p50", long: "Median", colour: "--chart-2", dash: [8, 4] },
  p95: { title: "p95", long: "95th percentile", colour: "--chart-3", dash: [6, 4], shown: true },
  p99: { title: "p99", long: "99th percentile", colour: "--chart-4", dash: [2, 3] },
  ttfb: { title: "First byte", colour: "--chart-5", dash: [10, 3, 2, 3] },
  connect: { title: "Connection", colour: "--chart-2", dash: [3, 5] },
  least: { title: "Least", colour: "--chart-2", width: 1, faint: true, shown: true },
  most: { title: "Most", colour: "--chart-3", width: 1, faint: true, shown: true },
};
// In the range of one hour every point is one check, so show its phases instead of percentiles.
const OF_AN_HOUR = { mean: { title: "Latency" }, ttfb: { shown: true }, connect: { shown: true } };

const section = document.querySelector("[data-latency]");
const place = section.querySelector("[data-chart]");
const legend = section.querySelector("[data-legend]");
const reset = section.querySelector("[data-reset]");
const numbers = section.querySelector("[data-numbers]");
const loss = section.querySelector("[data-loss]");
const lossPlace = section.querySelector("[data-loss-chart]");
const hidden = new Map(); // lines that the user hid or showed, by name

let data = null;
let chart = null;
let lossChart = null;
let asked = 0;

function colour(name, alpha = 1) {
  // light-dark() is only resolved where a colour is used.
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  place.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return alpha === 1 ? found : found.replace(/^rgba?\(([^)]*)\)$/, (_, parts) => `rgb(${parts.split(/[ ,]+/).slice(0, 3).join(" ")} / ${alpha})`);
}

function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(2)} s`;
}

function percent(value) {
  if (value === null || value === undefined) return "–";
  return `${value < 10 && value % 1 ? value.toFixed(1) : Math.round(value)} %`;
}

function moments(u, splits) {
  return splits.map((at) => {
    const date = new Date(at * 1000);
    return (date.getHours() || date.getMinutes() ? shortTime : shortDay)(date);
  });
}

function linesOf(given) {
  return Object.keys(given.lines)
    .filter((name) => given.range !== "1h" || name in OF_AN_HOUR)
    .filter((name) => given.lines[name].some((value) => value !== null)) // not each type has a connection or a first byte
    .map((name) => ({ name, ...KINDS[name], ...(given.range === "1h" ? OF_AN_HOUR[name] : {}) }));
}

function isShown(line) {
  return hidden.has(line.name) ? !hidden.get(line.name) : Boolean(line.shown);
}

function shadeOutages(u) {
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  for (const outage of data.outages) {
    const start = u.valToPos(Math.max(outage.from, u.scales.x.min), "x", true);
    const end = u.valToPos(Math.min(outage.until ?? data.until, u.scales.x.max), "x", true);
    if (end < left || start > left + width) continue;
    const wide = Math.max(end - start, 3 * devicePixelRatio);
    ctx.fillStyle = colour("--down-fill", 0.16);
    ctx.fillRect(start, top, wide, height);
    ctx.fillStyle = colour("--down-fill");
    ctx.fillRect(start, top, wide, 3 * devicePixelRatio);
  }
  ctx.restore();
}

function tooltip() {
  const box = document.createElement("div");
  box.className = "chart-tip";
  box.hidden = true;
  return {
    hooks: {
      init: (u) => u.over.append(box),
      setCursor: (u) => {
        const index = u.cursor.idx;
        // The nearest point may be far away or outside the view.
        const far = () => Math.abs(u.valToPos(data.x[index], "x") - u.cursor.left) > 40;
        box.hidden = index === null || index === undefined || u.cursor.left < 0 || far();
        if (box.hidden) return;
        const rows = linesOf(data).filter(isShown).map((line) => `${line.title}: ${milliseconds(data.lines[line.name][index])}`);
        const at = data.x[index];
        if (data.loss) rows.push(`Loss: ${percent(data.loss[index])}`);
        if (data.outages.some((outage) => outage.from <= at && at <= (outage.until ?? data.until))) rows.unshift("Outage");
        box.replaceChildren(
          ...[full(at * 1000), ...rows].map((text, row) => {
            const line = document.createElement(row ? "div" : "strong");
            line.textContent = text;
            return line;
          }),
        );
        const right = u.cursor.left < u.over.clientWidth / 2;
        box.style.left = right ? `${u.cursor.left + 14}px` : "";
        box.style.right = right ? "" : `${u.over.clientWidth - u.cursor.left + 14}px`;
      },
    },
  };
}

// Fills the area between two lines.
function between(lines, upper, lower) {
  const places = [upper, lower].map((name) => lines.findIndex((line) => line.name === name) + 1);
  return places.every(Boolean) ? [{ series: places, fill: colour("--chart-1", 0.1) }] : [];
}

// One chart with its own scale, and the same time as the one above it.
function drawLoss(axis) {
  loss.hidden = !data.loss;
  if (!data.loss) return;
  lossPlace.replaceChildren();
  lossChart = new window.uPlot(
    {
      width: lossPlace.clientWidth,
      height: LOSS_HEIGHT,
      padding: [8, 8, 8, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { range: (u, min, max) => (chart.zoomed ? [min, max] : [data.from, data.until]) }, y: { range: [0, 100] } },
      axes: [
        { ...axis, size: 0, values: () => [], ticks: { show: false } },
        { ...axis, size: 64, splits: () => [0, 50, 100], values: (u, values) => values.map((value) => (value === 50 ? "" : `${value} %`)) },
      ],
      series: [
        {},
        {
          label: "Loss",
          stroke: colour("--down-fill"),
          fill: colour("--down-fill"),
          width: 0,
          paths: window.uPlot.paths.bars({ size: [0.8, 14], align: 1 }),
          points: { show: false },
        },
      ],
    },
    [data.x, data.loss],
    lossPlace,
  );
}

function draw() {
  if (!data) return;
  chart?.destroy();
  lossChart?.destroy();
  chart = lossChart = null;
  loss.hidden = true;
  const lines = linesOf(data);
  if (!data.x.length) {
    place.replaceChildren(note(`No measurements in the last ${data.title}.`));
    return;
  }
  place.replaceChildren();
  const grid = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--muted"), grid, ticks: { ...grid, size: 4 }, font: `12px ${getComputedStyle(document.body).fontFamily}` };
  chart = new window.uPlot(
    {
      width: place.clientWidth,
      height: HEIGHT,
      padding: [12, 8, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 7 }, drag: { x: true, y: false } },
      scales: { x: { range: (u, min, max) => (u.zoomed ? [min, max] : [data.from, data.until]) }, y: { range: (u, min, max) => [0, Math.max(max * 1.1, 1)] } },
      axes: [{ ...axis, size: 32, values: moments }, { ...axis, size: 64, values: (u, values) => values.map(milliseconds) }],
      series: [
        {},
        ...lines.map((line) => ({
          label: line.title,
          show: isShown(line),
          stroke: colour(line.colour, line.faint ? 0.45 : 1),
          width: line.width ?? 1.5,
          dash: line.dash,
          points: { show: data.x.length < 40, size: 5 },
        })),
      ],
      bands: between(lines, "most", "least"),
      hooks: {
        drawClear: [shadeOutages],
        setSelect: [
          (u) => {
            if (u.select.width <= 4) return;
            u.zoomed = true;
            reset.hidden = false;
          },
        ],
        setScale: [(u, key) => key === "x" && u.zoomed && lossChart?.setScale("x", { min: u.scales.x.min, max: u.scales.x.max })],
      },
      plugins: [tooltip()],
    },
    [data.x, ...lines.map((line) => data.lines[line.name])],
    place,
  );
  drawLoss(axis);
}

function note(text) {
  const paragraph = document.createElement("p");
  paragraph.className = "muted";
  paragraph.textContent = text;
  return paragraph;
}

function drawLegend() {
  legend.replaceChildren(
    ...linesOf(data).map((line) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "chip";
      button.dataset.line = line.name;
      if (line.long) button.title = line.long;
      button.setAttribute("aria-pressed", String(isShown(line)));
      const mark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      mark.setAttribute("viewBox", "0 0 24 8");
      mark.setAttribute("aria-hidden", "true");
      mark.classList.add("line-mark");
      const stroke = document.createElementNS("http://www.w3.org/2000/svg", "path");
      stroke.setAttribute("d", "M0 4H24");
      stroke.setAttribute("class", `stroke${line.colour.slice(1)}`);
      if (line.dash) stroke.setAttribute("stroke-dasharray", line.dash.join(" "));
      mark.append(stroke);
      button.append(mark, `${line.title} `);
      const whole = document.createElement("strong");
      whole.className = "number";
      whole.textContent = milliseconds(data.whole[line.name]);
      button.append(whole);
      return button;
    }),
  );
}

function describe() {
  const summary = linesOf(data).map((line) => `${line.title} ${milliseconds(data.whole[line.name])}`).join(", ") || "no latencies";
  const outages = data.outages.length === 1 ? "1 outage" : `${data.outages.length} outages`;
  place.setAttribute("aria-label", `Latency of the last ${data.title}. ${summary}. ${outages}.`);
  numbers.hidden = !data.x.length;
  if (data.loss) describeLoss();
  if (numbers.open) fillTable();
}

function describeLoss() {
  const mean = percent(data.whole.loss);
  const most = Math.max(...data.loss.filter((value) => value !== null));
  const worst = data.x[data.loss.indexOf(most)];
  section.querySelector("[data-loss-mean]").textContent = mean;
  const text = most ? `${mean} on average, at most ${percent(most)}, at ${full(worst * 1000)}.` : "none.";
  lossPlace.setAttribute("aria-label", `Packet loss of the last ${data.title}: ${text}`);
}

function fillTable() {
  const lines = linesOf(data);
  const row = (tag, texts) => {
    const tr = document.createElement("tr");
    tr.append(
      ...texts.map((text, index) => {
        const cell = document.createElement(tag);
        if (tag === "th") cell.scope = "col";
        if (index) cell.className = "end number";
        cell.textContent = text;
        return cell;
      }),
    );
    return tr;
  };
  numbers.querySelector("thead").replaceChildren(row("th", ["Time", ...lines.map((line) => line.title), ...(data.loss ? ["Loss"] : [])]));
  const rows = data.x
    .map((at, index) => [
      full(at * 1000),
      ...lines.map((line) => milliseconds(data.lines[line.name][index])),
      ...(data.loss ? [percent(data.loss[index])] : []),
    ])
    .filter((texts) => texts.slice(1).some((text) => text !== "–"));
  numbers.querySelector("tbody").replaceChildren(...rows.reverse().map((texts) => row("td", texts)));
}

function press(range) {
  for (const tab of section.querySelectorAll("[data-range]")) tab.setAttribute("aria-pressed", String(tab.dataset.range === range));
}

async function show(range) {
  const number = ++asked;
  press(range);
  const answer = await ask(`${section.dataset.latency}?range=${range}`, { headers: { Accept: "application/json" } });
  if (number !== asked) return; // a newer request replaces this one
  if (!answer) {
    if (data) press(data.range);
    else place.replaceChildren(note("The latencies could not be loaded. Choose a time to try again."));
    return;
  }
  const found = JSON.parse(answer.text);
  if (found.unavailable) {
    if (data) {
      press(data.range);
      announce(found.unavailable, { shown: true });
    } else place.replaceChildren(note(found.unavailable));
    return;
  }
  data = found;
  reset.hidden = true;
  draw();
  drawLegend();
  describe();
}

section.addEventListener("click", (event) => {
  const tab = event.target.closest("[data-range]");
  const line = event.target.closest("[data-line]");
  if (tab) show(tab.dataset.range);
  else if (line) {
    hidden.set(line.dataset.line, line.getAttribute("aria-pressed") === "true");
    const index = linesOf(data).findIndex((each) => each.name === line.dataset.line);
    line.setAttribute("aria-pressed", String(!hidden.get(line.dataset.line)));
    chart?.setSeries(index + 1, { show: !hidden.get(line.dataset.line) });
  } else if (event.target.closest("[data-reset]")) {
    reset.hidden = true;
    draw();
  }
});

numbers.addEventListener("toggle", () => {
  if (numbers.open && data) fillTable();
});

function redraw() {
  reset.hidden = true;
  draw();
}

let width = place.clientWidth;
new ResizeObserver(() => {
  if (Math.abs(place.clientWidth - width) < 2) return;
  width = place.clientWidth;
  chart?.setSize({ width, height: HEIGHT });
  lossChart?.setSize({ width, height: LOSS_HEIGHT });
}).observe(place);
document.addEventListener("themechange", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

show(section.querySelector("[data-range][aria-pressed=true]").dataset.range);
