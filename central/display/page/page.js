const by = id => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Gives a node these children. Those that are the same stay, so that what a reader has selected, or hears read aloud, is not taken away
// each second.
function fill(node, ...children) {
  const isOf = (old, now) => old?.nodeType === now.nodeType && old.nodeName === now.nodeName;
  children = children.map(child => typeof child === "string" ? document.createTextNode(child) : child);
  while (node.childNodes.length > children.length) node.lastChild.remove();
  children.forEach((now, i) => {
    const old = node.childNodes[i];
    if (!old) return node.append(now);
    if (old.isEqualNode(now)) return;
    if (!isOf(old, now)) return old.replaceWith(now);
    if (now.nodeType === Node.TEXT_NODE) return void (old.data = now.data);
    for (const {name} of [...old.attributes]) if (!now.hasAttribute(name)) old.removeAttribute(name);
    for (const {name, value} of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    fill(old, ...now.childNodes);
  });
}

// ---- numbers for people
const round = (value, digits = 3) => value === undefined ? "–" : String(Number(value.toPrecision(digits)));
const percent = (share, digits = 3) => share === undefined ? "–" : round(share * 100, digits) + " %";
const scaled = (value, unit, names = ["", "k", "M", "G", "T"]) => {
  if (value === undefined) return "–";
  let i = 0;
  while (value >= 1000 && i < names.length - 1) { value /= 1000; ++i; }
  return round(value) + " " + names[i] + unit;
};
const rate = bytes => bytes === undefined || bytes === 0 ? "not measured yet" : scaled(bytes * 8, "bit/s");
const bytes = value => scaled(value, "B");
const duration = seconds => {
  if (seconds === undefined) return "–";
  const whole = Math.round(seconds), two = n => String(n).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return (hours ? hours + ":" + two(minutes) : minutes) + ":" + two(whole % 60);
};
const day = unix_s => new Date(unix_s * 1000).toLocaleString([], {dateStyle: "medium", timeStyle: "short"});
const count = (n, noun) => n + " " + noun + (n === 1 ? "" : "s");
const layersOf = stage => stage.first_layer === stage.last_layer ? "layer " + stage.first_layer
                                                                 : `layers ${stage.first_layer} to ${stage.last_layer}`;
const list = entries => make("dl", {}, ...entries.filter(([, value]) => value !== undefined && value !== "")
                                              .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));

const codecWords = {identity: "exact", int8: "8-bit integers, exact", mbq: "levels that follow the tensor (mbq)",
                    stochastic: "rounded at random (stochastic)", hadamard: "rotated and rounded (hadamard)",
                    eden: "rotated, without bias (eden)", tile: "rounded in tiles (tile)", topk: "only the largest values (topk)",
                    tile_ans: "rounded in tiles, by entropy (tile_ans)", hadamard_ans: "rotated and rounded, by entropy (hadamard_ans)",
                    eden_ans: "rotated, without bias, by entropy (eden_ans)", auto: "the one that errs least (auto)", aqsgd: "changes since the epoch before (aqsgd)",
                    topk8: "only the largest values, 8 bits (topk8)", mx: "shared exponents (mx)", lowrank: "two thin matrices (lowrank)",
                    grid: "rounded on one grid (grid)", recipe: "in the recipe's bits (recipe)"};
function codec(text, bits) {
  const family = text.replace(/^\d+:/, "").match(/^[a-z_0-9]+/)?.[0];
  const words = text.includes(",") ? text : codecWords[family] ?? text;
  return bits && bits !== 32 ? `${words}, ${round(bits)} of 32 bits` : words;
}

// ---- parts of the page
const phases = {waiting: "Waiting for workers", preparing: "Preparing", training: "Training", evaluating: "Evaluating",
                paused: "Paused: runnel-central continue goes on", done: "Done"};

function showHead(state) {
  by("model").textContent = [state.model, state.dataset].filter(Boolean).join(" on ");
  let phase = phases[state.phase] ?? state.phase ?? "";
  if (state.phase === "done" && state.step < state.steps) phase = `Ended after ${state.step} of ${state.steps} steps`;
  if (by("phase").textContent !== phase) by("phase").textContent = phase;
  by("doing").textContent = state.doing ? `${state.doing}: ${Math.floor(100 * state.done_share)} %` : "";
  const share = state.steps ? 100 * state.step / state.steps : 0;
  by("progress").setAttribute("aria-valuenow", share.toFixed(0));
  by("progress").firstElementChild.style.width = share + "%";
  document.title = (state.phase === "training" ? share.toFixed(0) + " % " : "") + "Runnel" + (state.model ? " " + state.model : "");
  const figures = [["Step", `${state.step} of ${state.steps}`], ["Epoch", `${state.epoch} of ${state.epochs}`],
    ["Samples a second", round(state.samples_per_s)], ["Training loss", round(state.train_loss, 4)],
    ["Accuracy", state.accuracy === undefined ? "not yet" : (100 * state.accuracy).toFixed(2) + " %"],
    ...(state.grid_bits ? [["Bits of values / gradients", state.grid_bits]] : []),
    ["Learning rate", round(state.learning_rate)], ["Time left", state.phase === "done" ? "0:00" : duration(state.eta_s)],
    ["Workers lost and survived", String(state.recoveries)]];
  fill(by("figures"), ...figures.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  by("version").textContent = (state.version ?? "") + ".";
}

function showWaiting(state) {
  const join = state.join, missing = join.wanted - join.here;
  by("waiting").hidden = state.phase === "done" || (state.phase !== "waiting" && missing <= 0);
  by("waiting-text").textContent = (missing > 0 ? `${missing} more ${state.phase === "waiting" ? "awaited" : "may join"}. ` : "") +
    `Here: ${join.here} of ${join.wanted} that dial in, ${join.local_here} of ${join.local_wanted} on central's host.`;
  const [again, first] = join.commands;
  by("join").hidden = !again;
  for (const id of ["first-text", "first", "token-text"]) by(id).hidden = !first;
  by("first").nextElementSibling.hidden = !first;
  for (const [id, command] of [["again", again], ["first", first]])
    if (by(id).textContent !== (command ?? "")) by(id).textContent = command ?? "";
  fill(by("waiting-list"), ...state.workers.map(worker =>
    make("li", {}, `${worker.here ? "● joined: " : "✖ lost: "}${worker.name}${worker.local ? " (central's host)" : ""}`)));
}

function stateOf(worker, stage, state) {
  if (!worker.here) return {sign: "✖", text: "lost", level: "bad"};
  if (worker.heard_s_ago > 3) return {sign: "?", text: `silent for ${round(worker.heard_s_ago, 2)} s`, level: "bad"};
  if (worker.state === "leaves" || worker.state === "failed") return {sign: "◐", text: worker.state, level: "warn"};
  if (!stage) return {sign: "○", text: state.stages.length ? "has no layers" : "waits for the run", level: "warn"};
  return {sign: "●", text: "has " + layersOf(stage), level: "good"};
}

const stageOf = (state, name) => state.stages.find(stage => stage.device === name);

function showMap(state) {
  const layers = state.layers.length;
  const rows = state.workers.map(worker => {
    const stage = stageOf(state, worker.name), is = stateOf(worker, stage, state);
    const cells = state.layers.map((name, i) => {
      const own = stage && i >= stage.first_layer && i <= stage.last_layer;
      return make("i", {class: own ? (worker.here ? "own" : "lost") : "", title: `layer ${i}: ${name}`});
    });
    return make("div", {}, make("span", {class: is.level + "-text"}, `${is.sign} ${worker.name}`),
                make("div", {class: "layers", role: "img", "aria-label": `${worker.name} ${is.text}, of ${count(layers, "layer")}`}, ...cells));
  });
  fill(by("map"), ...rows);
  by("legend").textContent = layers + " layers from left to right; ● has layers, ○ has none, ◐ leaves or failed, ? silent, ✖ lost.";
}

function showWorkers(state) {
  fill(by("workers"), ...state.workers.map(worker => {
    const stage = stageOf(state, worker.name), is = stateOf(worker, stage, state);
    const memory = stage && `${bytes(stage.memory_bytes)} planned${stage.stash_bytes ? `, ${bytes(stage.stash_bytes)} of it for micro-batches in flight` : ""}, ${bytes(stage.peak_rss_bytes)} used at most`;
    return make("div", {class: "card " + is.level}, make("h3", {}, `${is.sign} ${worker.name}`), list([
      ["State", is.text], ["Heard", worker.here ? round(Math.max(0.1, worker.heard_s_ago), 2) + " s ago" : "no more"],
      ["Computes", stage && percent(stage.busy_share) + " of the time"],
      ["A micro-batch", stage?.measured_ms && round(stage.measured_ms) + " ms" + (stage.predicted_ms ? `, ${round(stage.predicted_ms)} planned` : "")],
      ["Memory", memory], ["May take", worker.memory_bytes && bytes(worker.memory_bytes)],
      ["Where", worker.local ? "central's host" : worker.address + (worker.relayed ? ", by way of central" : "")],
      ["Waiting for it", stage && worker.here ? count(stage.queue_length ?? 0, "tensor") : ""],
      ["Arithmetic", worker.numerics_class], ["Options", worker.options], ["Limits", worker.limits],
      ["Temperature", stage?.celsius && round(stage.celsius) + " °C"], ["Battery", stage?.battery_charge && percent(stage.battery_charge)],
      ["Certificate until", stage?.certificate_until_s && day(stage.certificate_until_s)],
      ["Processors", worker.processors.filter(one => one.usable !== "no").map(one => one.backend).join(", ")]]));
  }));
  if (!state.workers.length) fill(by("workers"), "None yet.");
}

function showLinks(state) {
  const cards = state.links.flatMap(link => ["forward", "backward"].map(direction => {
    const measured = link[`bandwidth_${direction}_bytes_per_s`], expected = link[`expected_${direction}_bytes_per_s`];
    const slow = measured > 0 && expected > 0 && measured < 0.5 * expected;
    const [from, to] = direction === "forward" ? [link.from, link.to] : [link.to, link.from];
    const wire = link[`bytes_${direction}`], raw = link[`raw_bytes_${direction}`], resent = link[`resent_${direction}`];
    const level = slow ? "bad" : link.relayed || resent ? "warn" : "good";
    const title = `${slow ? "✖ slow: " : link.relayed ? "↷ " : ""}${from} → ${to}`;
    return make("div", {class: "card " + level}, make("h3", {}, title), list([
      ["Carries", direction === "forward" ? "activations" : "gradients"], ["Codec", codec(link["codec_" + direction], link["bits_" + direction])],
      ["Measured", rate(measured)], ["Planned with", expected ? rate(expected) : "no limit known"],
      ["Sent", wire ? `${bytes(wire)}${raw ? ` in place of ${bytes(raw)}` : ""}` : "nothing yet"],
      ["Round trip", link.round_trip_s && round(link.round_trip_s * 1e3) + " ms"],
      ["Way", link.relayed ? "by way of central, since one cannot dial the other" : ""],
      ["Sent again", resent ? count(resent, "frame") + " after the connection broke" : ""],
      ["What to do", slow ? "look what else uses it, or whether a device fell back to a slower network" : ""]]));
  }));
  fill(by("links"), ...cards);
  if (!cards.length) fill(by("links"), state.stages.length ? "One stage alone has no links." : "None yet.");
}

function showPlan(state) {
  const [now, before] = state.plans, parts = state.parts;
  if (!now) return fill(by("plan"), "None yet.");
  const stages = plan => plan.stages.map(stage => `${stage.device}: ${layersOf(stage)}`).join("; ");
  fill(by("plan"), make("div", {class: "card"}, list([["Plan", `${now.generation}, from step ${now.from_step} on`], ["Reason", now.why ?? "none was given"],
    ["Now", stages(now)], ["Before", before && stages(before)], ["Links", now.links],
    ["A micro-batch", state.predicted_ms && `${round(state.micro_batch_ms)} ms, ${round(state.predicted_ms)} ms planned`],
    ["Made of", parts && `${round(parts.computing_ms)} ms computing (${parts.slowest} longest), ${round(parts.links_ms)} links, ${round(parts.bubble_ms)} filling and draining, ${round(parts.schedule_ms)} schedule, ${round(parts.evaluation_ms)} evaluations, ${round(parts.other_ms)} other; ${round(parts.memory_ms)} of these for want of memory`],
    ["Would help", parts && (parts.helps.map(help => `${help.what}: ${round(help.ms)} ms`).join("; ") || "nothing stands out")],
    ["Slower because", state.slow_because]])));
}

function showTime(state) {
  by("bubble").textContent = state.bubble_share === undefined ? "Nothing is trained yet."
    : `Bubble: ${percent(state.bubble_share)} of the stages' time since the plan holds goes without computing.`;
  const slices = state.busy.filter(slice => slice.generation === state.plans[0]?.generation);
  fill(by("timeline"), ...state.stages.map((stage, i) => {
    const send = slices.reduce((sum, slice) => sum + (slice.send?.[i] ?? 0) * slice.seconds, 0) / (slices.reduce((sum, slice) => sum + slice.seconds, 0) || 1);
    const label = `${stage.device}: forward ${percent(stage.forward_share, 2)}, backward ${percent(stage.backward_share, 2)}, ` +
      `${stage.update_share > 0.005 ? `update ${percent(stage.update_share, 2)}, ` : ""}waits ${percent(stage.wait_share, 2)}; sends ${percent(send, 2)}`;
    return make("div", {class: "strip"}, make("span", {}, label), drawStrip(slices, i, label));
  }));
}

const signs = {lost: "✖", plan: "▲", checkpoint: "■", training: "◆"};
function showCurves(state) {
  const marks = state.events.filter(event => signs[event.kind]).map(event =>
    ({step: event.step, kind: event.kind, sign: signs[event.kind], text: `${event.what}, step ${event.step}`}));
  const losses = state.losses;
  drawChart(by("loss"), {points: losses, marks, unit: "loss (cross-entropy)", smoothed: true, output: by("loss-value"),
    label: losses.length ? `training loss, ${round(losses[0][1])} at step ${losses[0][0]}, ${round(state.train_loss)} now` : "training loss, none yet",
    text: p => `step ${p[0]}: ${round(p[1], 4)}, between ${round(p[2], 4)} and ${round(p[3], 4)}`});
  const points = state.evaluations.filter(one => one[1] !== null).map(([step, accuracy]) => [step, 100 * accuracy]);
  const last = losses.length ? losses[losses.length - 1][0] : undefined;
  drawChart(by("accuracy"), {points, marks, unit: "accuracy, %", floor: 0, ceiling: 100, first: losses[0]?.[0], last, output: by("accuracy-value"),
    label: points.length ? `accuracy, ${round(points[points.length - 1][1], 4)} % after step ${points[points.length - 1][0]}` : "accuracy, none yet",
    text: p => `step ${p[0]}: ${p[1].toFixed(2)} %`});
  fill(by("evaluations"), ...state.evaluations.map(([step, accuracy, loss]) => make("tr", {}, make("td", {}, String(step)),
    make("td", {}, accuracy === null ? "–" : (100 * accuracy).toFixed(2)), make("td", {}, loss === null ? "–" : round(loss, 4)))));
}

const levels = {lost: "bad", failed: "bad", checkpoint_failed: "bad", warning: "warn", plan: "good", checkpoint: "good"};
function showEvents(state) {
  fill(by("events"), ...state.events.slice().reverse().map(event => {
    const at = new Date(event.unix_s * 1000), item = make("li", {class: levels[event.kind] ?? ""},
      make("time", {datetime: at.toISOString()}, at.toLocaleTimeString()), `${signs[event.kind] ?? ""} step ${event.step}: ${event.what}`);
    if (event.why) item.append(make("div", {}, "Why: " + event.why));
    if (event.remedy) item.append(make("div", {}, "What to do: " + event.remedy));
    return item;
  }));
  if (!state.events.length) fill(by("events"), make("li", {}, "None yet."));
}

// Of a run whose samples skip blocks: what its gates chose up to the last barrier.
function showGates(state) {
  const gates = state.gates ?? [], samples = gates.length ? gates[0].samples.reduce((sum, n) => sum + n, 0) : 0;
  by("gates").hidden = !gates.length;
  const skipped = gates.reduce((sum, gate) => sum + gate.skipped_share, 0) / Math.max(1, gates.length);
  by("gates-text").textContent = `Samples skipped ${percent(skipped)} of the blocks, ${count(samples, "sample")} up to the last barrier.`
    + (state.gate_targets ?? []).filter(target => target.samples).map(target => ` Cost ${round(target.last_percent)} % of FP32's at the end of target ${round(target.percent)} %.`).join("");
  fill(by("gate-rows"), ...gates.map(gate => make("tr", {title: gate.options.map((option, i) => `${option}: ${gate.samples[i]}`).join(", ")},
    make("td", {}, gate.layer), make("td", {}, (100 * gate.skipped_share).toFixed(1)), make("td", {}, round(gate.mean_bits)))));
}

// ---- orders, for who has the token behind the # of the address; "read=TOKEN" only reads, where central is on another host
let mayOrder, token, mayRead;
function takeToken() {
  mayOrder = !location.hash.startsWith("#read=");
  token = location.hash.slice(mayOrder ? 1 : 6);
  mayRead = token ? {Authorization: "Bearer " + token} : {};
}
takeToken();
function showOrders(state) {
  by("orders").hidden = !token || !mayOrder || state.phase === "done";
  by("pause").textContent = state.phase === "paused" ? "Continue" : "Pause at the next barrier";
  by("pause").dataset.order = state.phase === "paused" ? "continue" : "pause";
  const names = state.workers.filter(worker => worker.here).map(worker => worker.name);
  if (names.join() === [...by("drained").options].map(option => option.value).join()) return;
  by("drained").replaceChildren(...names.map(name => make("option", {}, name)));
  const changes = [...names.slice(1).map(name => "leave:" + name), ...names.map(name => `add:one-more=${name}`), "mbps:10", "mbps:100"];
  by("assumptions").replaceChildren(...changes.map(value => make("option", {value})));
}

async function give(order) {
  const answer = await fetch("/orders/" + order, {method: "POST", headers: {...mayRead, "X-Runnel-Token": token}});
  by("order-answer").textContent = (await answer.text()).trim();
  return answer.ok;
}

// What would lose the weights is asked twice.
async function stopRun() {
  const sure = by("stop").dataset.sure;
  by("stop").dataset.sure = await give("stop" + (sure ? "?sure=yes" : "")) ? "" : "yes";
}

async function takeTrace() {
  if (!await give("trace?seconds=2")) return;
  by("order-answer").textContent = "Tracing for two seconds.";
  for (;;) {
    await new Promise(done => setTimeout(done, 250));
    const answer = await fetch("/trace", {headers: mayRead});
    if (answer.status === 204) continue;
    by("order-answer").textContent = answer.ok ? "The trace is there." : (await answer.text()).trim();
    // A link of its own would ask without the token.
    if (answer.ok) by("trace-file").href = URL.createObjectURL(await answer.blob());
    for (const id of ["trace-file", "perfetto"]) by(id).hidden = !answer.ok;
    return;
  }
}

// Perfetto answers a ping when it is ready to be given a trace.
async function openInPerfetto() {
  const there = "https://ui.perfetto.dev", view = open(there), trace = await (await fetch("/trace", {headers: mayRead})).arrayBuffer();
  if (!view) return;
  const ping = setInterval(() => view.postMessage("PING", there), 100);
  addEventListener("message", function ready(event) {
    if (event.origin !== there || event.data !== "PONG") return;
    clearInterval(ping);
    removeEventListener("message", ready);
    view.postMessage({perfetto: {buffer: trace, title: document.title}}, there);
  });
}

const orders = {pause: () => give(by("pause").dataset.order), drain: () => give("drain?name=" + encodeURIComponent(by("drained").value)),
                replan: () => give("replan"), stop: stopRun,
                ask: () => give("what-if?assumption=" + encodeURIComponent(by("assumption").value.trim())), trace: takeTrace, perfetto: openInPerfetto};
for (const [id, carryOut] of Object.entries(orders))
  by(id).addEventListener("click", () => carryOut().catch(error => { by("order-answer").textContent = "Central does not answer."; }));

// ---- where the state comes from: a report has it inside, else central is asked every second
let last = null, lastAt = 0;
function show(state) {
  last = state;
  for (const part of [showHead, showWaiting, showMap, showCurves, showTime, showGates, showWorkers, showLinks, showPlan, showEvents, showOrders]) part(state);
}

function showStale(error) {
  const age = last ? last.age_s + (Date.now() - lastAt) / 1000 : 0;
  const ended = last?.phase === "done";
  const stale = by("stale");
  stale.hidden = ended || !(error || age > 3);
  const text = error ? "Central does not answer: it has ended, or its host cannot be reached." : "Central is there, but its loop stands still.";
  stale.textContent = stale.hidden ? "" : text + (last ? ` What is below is ${duration(age)} old.` : "");
}

// Central does not know the token: it asks for another one, and looks again in case central has changed its mind.
function showNoRight() {
  by("stale").hidden = true;
  if (!by("no-right").hidden) return;
  by("no-right").hidden = false;
  by("token").focus();
}

by("no-right").addEventListener("submit", event => {
  event.preventDefault();
  const given = by("token").value.trim();
  // The whole address, what is behind its #, or the bare token; who is asked for one has a page over TLS, whose token only reads.
  location.hash = given.includes("#") ? given.slice(given.indexOf("#")) : given.startsWith("read=") ? given : "read=" + given;
  by("token").value = "";
  takeToken();
  refresh();
});
addEventListener("hashchange", () => { if (!report) { takeToken(); refresh(); } });

let timer = 0;
async function refresh() {
  clearTimeout(timer);
  let error = null, pause_ms = 1000;
  try {
    const asked = mayRead;
    const answer = await fetch("/state", {headers: asked, signal: AbortSignal.timeout(5000)});
    // Another token has been given meanwhile, which asks by itself.
    if (asked !== mayRead) return;
    if (answer.status === 401) {
      showNoRight();
      pause_ms = 10000;
    } else {
      const state = await answer.json();
      lastAt = Date.now();
      by("no-right").hidden = true;
      show(state);
    }
  } catch (reason) {
    error = reason;
    if (!(reason instanceof TypeError) && reason.name !== "TimeoutError" && reason.name !== "AbortError") console.error(reason);
  }
  if (by("no-right").hidden) showStale(error);
  clearTimeout(timer);
  timer = setTimeout(refresh, pause_ms);
}

for (const button of document.querySelectorAll("[data-copies]")) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(by(button.dataset.copies).textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
addEventListener("resize", () => { if (last) showCurves(last); });
const report = JSON.parse(by("report").textContent);
if (report) show(report); else refresh();
