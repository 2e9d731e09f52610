#include "central/display/admin_page.h"

namespace runnel {
namespace {

constexpr char kPage[] = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Runnel</title>
<style>
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em }
  table { border-collapse: collapse; margin: .5em 0 1.5em }
  th, td { padding: .2em .8em; text-align: right; border-bottom: 1px solid #ccc }
  svg { width: 100%; height: 14em; background: #f6f6f6 }
  polyline { fill: none; stroke: #06c; stroke-width: 1.5; vector-effect: non-scaling-stroke }
  #error { color: #b00 }
</style>
<h1>Runnel</h1>
<p id="error"></p>
<table id="run"></table>
<h2>Stages</h2><table id="stages"></table>
<h2>Links</h2><table id="links"></table>
<h2>Training loss <small id="range"></small></h2>
<svg id="curve" viewBox="0 0 100 100" preserveAspectRatio="none"><polyline points=""/></svg>
<script>
const by = id => document.getElementById(id);
const show = v => typeof v === "number" && !Number.isInteger(v) ? v.toPrecision(4) : String(v ?? "-");
function fill(id, rows) {
  const table = by(id);
  table.replaceChildren();
  const columns = rows.length ? Object.keys(rows[0]) : [];
  const add = (tag, cells) => {
    const row = table.insertRow();
    for (const text of cells) {
      const cell = row.appendChild(document.createElement(tag));
      cell.textContent = text;
    }
  };
  add("th", columns.length ? columns : ["none yet"]);
  for (const row of rows) add("td", columns.map(c => show(row[c])));
}
function curve(points) {
  points = points.filter(p => typeof p[1] === "number");
  if (points.length < 2) return;
  const steps = points.map(p => p[0]), losses = points.map(p => p[1]);
  const low = Math.min(...losses), high = Math.max(...losses);
  const first = steps[0], last = steps[steps.length - 1];
  by("curve").firstChild.setAttribute("points", points.map(p =>
    100 * (p[0] - first) / (last - first || 1) + "," +
    (95 - 90 * (p[1] - low) / (high - low || 1))).join(" "));
  by("range").textContent = show(low) + " to " + show(high) + ", steps " + first + " to " + last;
}
async function refresh() {
  try {
    const state = await (await fetch("/state")).json();
    const plain = Object.entries(state).filter(([, v]) => typeof v !== "object" || v === null);
    fill("run", [Object.fromEntries(plain)]);
    fill("stages", state.stages ?? []);
    fill("links", state.links ?? []);
    curve(state.losses ?? []);
    by("error").textContent = "";
  } catch (error) {
    by("error").textContent = "No answer from central: " + error;
  }
  setTimeout(refresh, 1000);
}
refresh();
</script>
)html";

}  // namespace

absl::string_view AdminPage() { return kPage; }

}  // namespace runnel
