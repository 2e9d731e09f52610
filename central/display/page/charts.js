"use strict";
// SVG charts with axes, marks and a value under the pointer or the arrow keys. No state but that of the element.
const svgSpace = "http://www.w3.org/2000/svg";
const margin = {left: 56, right: 14, top: 36, bottom: 34};

function svg(tag, attributes, text) {
  const node = document.createElementNS(svgSpace, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// About `count` round numbers from low to high.
function ticks(low, high, count) {
  const raw = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= raw);
  const list = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; ++i) list.push(Number((i * step).toPrecision(12)));
  return list;
}

// Follows every `share` of the way: the mean of the last values, the latest ones most. The first values weigh as they should.
function smooth(values, share) {
  let sum = 0, weight = 0;
  return values.map(value => {
    sum = sum * (1 - share) + value * share;
    weight = weight * (1 - share) + share;
    return sum / weight;
  });
}

const path = points => points.map((p, i) => (i ? "L" : "M") + p[0].toFixed(1) + " " + p[1].toFixed(1)).join("");

function axes(chart, area, x, y, options) {
  const compact = value => Math.abs(value) >= 1e4 ? value / 1e3 + "k" : String(value);
  for (const value of ticks(options.low, options.high, 4)) {
    chart.append(svg("line", {class: "grid", x1: margin.left, x2: area.right, y1: y(value), y2: y(value)}));
    chart.append(svg("text", {x: margin.left - 6, y: y(value) + 4, "text-anchor": "end"}, compact(value)));
  }
  for (const value of ticks(options.first, options.last, Math.max(2, Math.floor(area.width / 110))))
    chart.append(svg("text", {x: x(value), y: area.bottom + 16, "text-anchor": "middle"}, compact(value)));
  chart.append(svg("text", {x: area.right, y: area.bottom + 30, "text-anchor": "end"}, "optimizer step"));
  chart.append(svg("text", {x: 6, y: 14}, options.unit));
}

function drawMarks(chart, area, x, marks) {
  for (const mark of marks) {
    const at = x(mark.step), kind = "mark " + mark.kind;
    const line = svg("line", {class: kind, x1: at, x2: at, y1: margin.top, y2: area.bottom});
    line.append(svg("title", {}, mark.text));
    chart.append(line, svg("text", {class: kind, x: at, y: margin.top - 4, "text-anchor": "middle"}, mark.sign));
  }
}

// Shows the value nearest to the pointer, or the next one by an arrow key.
function readOut(chart, output, points, area, x, text) {
  chart.readOut = {points, area, x, text};
  if (chart.showAgain) return chart.showAgain();
  let index = -1, step;
  const show = to => {
    const {points, area, x, text} = chart.readOut;
    if (!points.length) return;
    index = Math.min(Math.max(to, 0), points.length - 1);
    step = points[index][0];
    chart.querySelector(".cursor")?.remove();
    const at = x(points[index][0]);
    chart.append(svg("line", {class: "cursor", x1: at, x2: at, y1: margin.top, y2: area.bottom}));
    output.textContent = text(points[index]);
  };
  // The chart is drawn anew each second, and points become fewer: the value that was shown stays.
  chart.showAgain = () => {
    if (index >= 0) show(chart.readOut.points.findLastIndex(p => p[0] <= step));
  };
  chart.addEventListener("pointermove", event => {
    const {points, x} = chart.readOut;
    const at = event.clientX - chart.getBoundingClientRect().left;
    let nearest = 0;
    points.forEach((p, i) => { if (Math.abs(x(p[0]) - at) < Math.abs(x(points[nearest][0]) - at)) nearest = i; });
    show(nearest);
  });
  chart.addEventListener("keydown", event => {
    const by = {ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9}[event.key];
    if (!by) return;
    event.preventDefault();
    show(index + by);
  });
}

// options: points [[step, value, low, high]], marks, unit, smoothed, floor, ceiling, text(point), label, output.
function drawChart(chart, options) {
  const width = chart.clientWidth || 600, height = chart.clientHeight || 240;
  const area = {right: width - margin.right, bottom: height - margin.bottom, width};
  const {points} = options;
  chart.replaceChildren(svg("title", {}, options.label));
  chart.setAttribute("aria-label", options.label);
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  if (!points.length) {
    chart.append(svg("text", {x: width / 2, y: height / 2, "text-anchor": "middle"}, "none yet"));
    return;
  }
  const lows = points.map(p => p[2] ?? p[1]), highs = points.map(p => p[3] ?? p[1]);
  const range = {low: options.floor ?? Math.min(...lows), high: options.ceiling ?? Math.max(...highs), unit: options.unit,
                 first: options.first ?? points[0][0], last: Math.max(options.last ?? 0, points[points.length - 1][0])};
  const x = step => margin.left + (area.right - margin.left) * (step - range.first) / (range.last - range.first || 1);
  const y = value => area.bottom - (area.bottom - margin.top) * (value - range.low) / (range.high - range.low || 1);
  axes(chart, area, x, y, range);
  drawMarks(chart, area, x, options.marks.filter(mark => mark.step >= range.first && mark.step <= range.last));
  const line = points.map(p => [x(p[0]), y(p[1])]);
  if (options.smoothed) {
    const band = points.map((p, i) => [x(p[0]), y(highs[i])]).concat(points.map((p, i) => [x(p[0]), y(lows[i])]).reverse());
    chart.append(svg("path", {class: "band", d: path(band) + "Z"}), svg("path", {class: "raw", d: path(line)}));
    const values = smooth(points.map(p => p[1]), Math.min(1, Math.max(0.1, 8 / points.length)));
    chart.append(svg("path", {class: "smooth", d: path(points.map((p, i) => [x(p[0]), y(values[i])]))}));
  } else {
    chart.append(svg("path", {class: "smooth", d: path(line)}));
    for (const [cx, cy] of line) chart.append(svg("circle", {class: "dot", cx, cy, r: 4}));
  }
  readOut(chart, options.output, points, area, x, options.text);
}

// One stage's slices, the latest at the right: from below its forwards, backwards, what else it computed, and what it waited. A line of
// its own below that is how long its links sent, which goes on beside.
function drawStrip(slices, stage, label) {
  const total = slices.reduce((sum, slice) => sum + slice.seconds, 0) || 1;
  const strip = svg("svg", {viewBox: "0 0 1000 100", preserveAspectRatio: "none", "shape-rendering": "crispEdges", role: "img", "aria-label": label});
  let at = 0;
  for (const slice of slices) {
    const width = 1000 * slice.seconds / total, share = name => slice[name]?.[stage] ?? 0;
    const forward = share("forward"), backward = share("backward"), other = Math.max(0, share("busy") - forward - backward);
    let above = 80;  // of the strip: the sending line is below
    for (const [kind, part] of [["forward", forward], ["backward", backward], ["other", other], ["wait", share("wait")]]) {
      const height = Math.min(80 * part, above);
      above -= height;
      if (height > 0) strip.append(svg("rect", {class: kind, x: at, y: above, width, height}));
    }
    if (share("send") > 0) strip.append(svg("rect", {class: "send", x: at, y: 86, width: width * Math.min(1, share("send")), height: 14}));
    at += width;
  }
  return strip;
}
