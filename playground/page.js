// SPDX-License-Identifier: Apache-2.0
"use strict";
// The page around the engine: what is chosen becomes a scenario, which is simulated at once; its
// timeline and memory are drawn from the arrays where the engine has them.
(async () => {
const find = (selector, of = document) => of.querySelector(selector);
const all = (selector, of = document) => [...of.querySelectorAll(selector)];
const form = find("#form"), tip = find("#tip");
const engine = await makePenstock();
const call = (name, types, values) => JSON.parse(engine.UTF8ToString(engine.ccall(name, "number", types, values)));
const shipped = call("penstock_shipped", [], []);
const behind = find("meta[name=penstock-engine]");  // penstock serve
const schedules = new Map(shipped.schedules.map(s => [s.name, s]));

// --- what is chosen ------------------------------------------------------------------------------
const USUAL = {schedule: "1f1b", beside: "zb-h1", stages: "4", microbatches: "8", batches: "1", transfers: "overlapped",
  costs: "times", forward: "10", backward: "20", latency: "0.5", activation: "1024", parameters: "2", memory: "40",
  model: "gpt-2.2b", cluster: "dgx-a100", nodes: "1", tensor: "1", size: "4", recompute: "none", shipped: "", text: ""};

function fill(select, names, first) {
  const options = names.map(name => new Option(name, name));
  if (first) options.unshift(new Option(first, ""));
  select.replaceChildren(...options);
}
fill(form.schedule, [...schedules.keys()]);
fill(form.beside, [...schedules.keys()], "nothing");
fill(form.model, shipped.models);
fill(form.cluster, shipped.clusters);
fill(form.shipped, shipped.scenarios, "choose a scenario");
for (const option of [...form.schedule.options, ...form.beside.options])
  option.title = schedules.get(option.value)?.summary ?? "";

function show(state) {
  for (const [name, value] of Object.entries(state)) form[name].value = value;
}
function chosen() {
  return Object.fromEntries(Object.keys(USUAL).map(name => [name, form[name].value]));
}
function stateOfLink() {
  const given = new URLSearchParams(location.hash.slice(1));
  return {...USUAL, ...Object.fromEntries([...given].filter(([name]) => name in USUAL))};
}
function keepInLink(state) {
  const changed = Object.entries(state).filter(([name, value]) => value !== USUAL[name] && (name !== "text" || state.costs === "text"));
  history.replaceState(null, "", changed.length ? "#" + new URLSearchParams(changed) : location.pathname + location.search);
}

// --- the scenario --------------------------------------------------------------------------------
function scenarioOf(state, name) {
  if (state.costs === "text") return withSchedule(state.text, name);
  const s = schedules.get(name);
  const pipeline = s.whole_model ? {width: state.stages} : {stages: state.stages};
  if (!s.each) pipeline.microbatches = state.microbatches;
  if (s.chunks > 1 && !s.mirrored) pipeline.chunks = s.chunks;
  // Without a flush a run needs several updates for its steady state.
  const updates = s.each ? state.microbatches : s.flushes ? state.batches : Math.max(state.batches, 2 * state.stages);
  const parts = [["name", `"${name}, ${state.stages} stages, ${state.microbatches} microbatches"`]];
  if (state.costs === "times") {
    const model = {forward: `${state.forward} ms`};  // chunks divide what a device has
    if (s.splits) model.backward_input = model.backward_weight = `${+(state.backward / 2).toPrecision(12)} ms`;
    else model.backward = `${state.backward} ms`;
    Object.assign(model, {activation: `${state.activation} MiB`, parameters: `${state.parameters} GiB`});
    parts.push(["model", flow(model)], ["cluster", `{devices: ${state.stages}, memory: ${state.memory} GiB, link: {latency: ${state.latency} ms}}`]);
  } else {
    parts.push(["model", state.model], ["cluster", `{base: ${state.cluster}, nodes: ${state.nodes}}`]);
    Object.assign(pipeline, {tensor: state.tensor, microbatch_size: state.size, recompute: state.recompute, split: "balanced"});
  }
  parts.push(["schedule", name], ["batches", updates], ["transfers", state.transfers], ["pipeline", flow(pipeline)]);
  return parts.map(([key, value]) => `${key}: ${value}\n`).join("");
}
const flow = entries => "{" + Object.entries(entries).map(([key, value]) => `${key}: ${value}`).join(", ") + "}";
const withSchedule = (text, name) => /^schedule:.*$/m.test(text) ? text.replace(/^schedule:.*$/m, `schedule: ${name}`) : `${text}\nschedule: ${name}\n`;

// --- words ---------------------------------------------------------------------------------------
const number = (value, digits = 4) => Number(value.toPrecision(digits)).toString();
function time(s) {
  if (s === null || s === undefined) return "–";
  const [unit, scale] = s >= 1 || s === 0 ? ["s", 1] : s >= 1e-3 ? ["ms", 1e3] : ["µs", 1e6];
  return `${number(s * scale)} ${unit}`;
}
const bytes = value => value >= 2 ** 30 ? `${number(value / 2 ** 30)} GiB` : `${number(value / 2 ** 20)} MiB`;
const percent = value => `${(100 * value).toFixed(1)} %`;
const COLOURS = {F: "--F", B: "--B", I: "--I", W: "--W", REDUCE_GRAD: "--R", STEP: "--S"};
const WORDS = {F: "forward", B: "backward", I: "backward, inputs", W: "backward, weights", REDUCE_GRAD: "reduction of gradients", STEP: "optimizer step"};
const ink = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Black or white, which stands out more from a colour: at least 4.5:1 from any. */
function inkOn(colour) {
  const [red, green, blue] = [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16) / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

// --- one side ------------------------------------------------------------------------------------
const view = {from: 0, to: 1};  // of both sides' time, in seconds
class Side {
  constructor(number, element) {
    this.number = number;
    this.element = element;
    element.append(find("#side").content.cloneNode(true));
    this.timeline = find(".timeline", element);
    this.memory = find(".memory", element);
    this.device = find(".of select", element);
    this.device.addEventListener("change", () => this.drawMemory());
    find(".report", element).addEventListener("click", () => this.openReport());
    find(".ask", element).hidden = !behind;
    find(".ask", element).addEventListener("click", () => this.ask());
    listen(this);
  }

  simulate(name, scenario) {
    this.name = name;
    this.scenario = scenario;
    find("h2", this.element).textContent = name;
    find(".said", this.element).textContent = "";
    const answer = call("penstock_simulate", ["number", "string"], [this.number, scenario]);
    this.result = answer.result;
    const problem = find(".problem", this.element);
    problem.hidden = !answer.problems;
    problem.textContent = (answer.problems ?? []).map(p => p.rendered).join("\n");
    find(".answer", this.element).hidden = !this.result;
    this.arrays = this.walked = null;  // walked: the op that the keyboard has come to
    if (this.result) this.take();
  }

  /// The arrays are copied: the engine's memory may move.
  take() {
    const at = call("penstock_arrays", ["number"], [this.number]);
    const buffer = engine.HEAPU8.buffer;
    this.arrays = {count: at.count, kinds: at.kinds, ends: at.ends,
      ops: new Uint32Array(buffer.slice(at.ops, at.ops + 8 * at.count)),
      spans: new Float64Array(buffer.slice(at.spans, at.spans + 16 * at.count)),
      versions: new Uint32Array(buffer.slice(at.versions, at.versions + 4 * at.count))};
    this.curves = new Map();
    const devices = this.result.devices.length;
    if (this.device.options.length !== devices) this.device.replaceChildren(...Array.from({length: devices}, (_, d) => new Option(d, d)));
  }

  op(g) {
    const low = this.arrays.ops[2 * g], high = this.arrays.ops[2 * g + 1];
    return {microbatch: low, stage: high & 0xffff, kind: this.arrays.kinds[(high >> 16) & 0xff],
      start: this.arrays.spans[2 * g], end: this.arrays.spans[2 * g + 1], version: this.arrays.versions[g]};
  }

  words() {
    const r = this.result, fullest = Math.max(...r.devices.map(d => d.peak_memory_bytes));
    const held = Math.max(...r.devices.map(d => d.weight_versions_peak ?? 1)), stale = Math.max(...r.devices.map(d => d.staleness_max ?? 0));
    const figures = [
      ["fits?", r.feasible === false ? "no" : r.feasible && r.devices.some(d => d.capacity_bytes) ? "yes" : "unknown",
        r.feasible === null ? `without ${r.missing ?? r.missing_saves ?? "a capacity"}` : r.infeasible_because?.[0] ?? "", r.feasible === false ? "bad" : "good"],
      ["update", time(r.iteration_time_s ?? r.makespan_s), `${number(r.throughput_samples_per_s ?? 0)} samples/s`],
      ["bubble", percent(r.bubble_fraction), `run of ${time(r.makespan_s)}`],
      ["memory", bytes(fullest), "of the fullest device"],
      ["weight versions", String(held), stale ? `${stale} ${stale === 1 ? "update" : "updates"} stale at most` : "never stale"]];
    find(".figures", this.element).replaceChildren(...figures.map(([what, value, detail, verdict]) => {
      const box = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd"), small = document.createElement("small");
      box.className = verdict ?? "";
      dt.textContent = what; dd.textContent = value; small.textContent = detail;
      dd.append(small); box.append(dt, dd);
      return box;
    }));
    this.timeline.setAttribute("aria-label", `Timeline of ${this.name}: ${r.devices.length} devices, ${time(r.makespan_s)}, bubble ${percent(r.bubble_fraction)}`);
    this.memory.setAttribute("aria-label", `Memory over time, at most ${bytes(fullest)}`);
    const rows = r.devices.map((d, i) => [i, time(d.busy_s), time(d.idle_s), bytes(d.peak_memory_bytes), d.stash_peak, d.weight_versions_peak, d.staleness_max]);
    const table = find("table", this.element);
    table.replaceChildren();
    for (const [tag, row] of [["th", ["device", "busy", "idle", "peak", "stash", "versions", "staleness"]], ...rows.map(row => ["td", row])]) {
      const line = table.insertRow();
      for (const cell of row) line.append(Object.assign(document.createElement(tag), {textContent: cell ?? "–"}));
    }
  }

  draw() {
    if (!this.arrays) return;
    this.words();
    this.drawTimeline();
    this.drawMemory();
  }

  drawTimeline() {
    const {ends, spans, ops, kinds, count} = this.arrays, devices = ends.length;
    const row = Math.max(7, Math.min(26, Math.floor(420 / devices)));
    const {context, width} = prepared(this.timeline, devices * row + 18);
    const scale = width / (view.to - view.from), colours = kinds.map(kind => ink(COLOURS[kind] ?? "--faint"));
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    const inks = colours.map(inkOn), seen = new Set();
    for (let d = 0, g = 0; d < devices; ++d) {
      const top = d * row + 1;
      let until = -1;  // pixels that are drawn: of many ops in one, the first is enough
      for (; g < ends[d]; ++g) {
        const start = (spans[2 * g] - view.from) * scale, end = (spans[2 * g + 1] - view.from) * scale;
        if (end < 0 || start > width || end <= until) continue;
        const kind = (ops[2 * g + 1] >> 16) & 0xff, left = Math.max(start, -1, until), wide = Math.max(end - left, 0.5);
        seen.add(kind);
        context.fillStyle = colours[kind];
        context.fillRect(left, top, wide > 3 ? wide - 0.7 : wide, row - 2);
        if (Math.min(end, width) - left > 4 + 6 * String(ops[2 * g]).length && row > 11) {
          context.fillStyle = inks[kind];
          context.fillText(ops[2 * g], (left + Math.min(end, width)) / 2, top + row / 2 - 0.5);
        }
        until = Math.floor(end);
      }
    }
    axis(context, width, devices * row);
    this.row = row;
    if (this.walked !== null) {
      const d = this.deviceOf(this.walked), [start, end] = [0, 1].map(i => (spans[2 * this.walked + i] - view.from) * scale);
      context.lineWidth = 2;
      context.strokeStyle = ink("--ink");
      context.strokeRect(start + 1, d * row + 1, Math.max(2, end - start - 2), row - 2);
    }
    find(".legend", this.element).replaceChildren(...[...seen].sort().map(kind => {
      const span = document.createElement("span"), i = document.createElement("i");
      i.style.background = colours[kind];
      span.append(i, WORDS[kinds[kind]] ?? kinds[kind]);
      return span;
    }));
  }

  drawMemory() {
    if (!this.arrays) return;
    const device = +this.device.value || 0;
    if (!this.curves.has(device)) {
      const at = call("penstock_memory", ["number", "number"], [this.number, device]);
      this.curves.set(device, new Float64Array(engine.HEAPU8.buffer.slice(at.points, at.points + 16 * at.count)));
    }
    const curve = this.curves.get(device), {context, width, height} = prepared(this.memory, 110);
    const capacity = this.result.devices[device].capacity_bytes ?? 0;
    let most = capacity;
    for (let i = 1; i < curve.length; i += 2) most = Math.max(most, curve[i]);
    const x = s => (s - view.from) / (view.to - view.from) * width, y = b => height - 2 - b / (most * 1.08 || 1) * (height - 16);
    context.fillStyle = ink("--I");
    context.beginPath();
    context.moveTo(x(0), height);
    for (let i = 0; i < curve.length; i += 2) {
      context.lineTo(x(curve[i]), y(i ? curve[i - 1] : 0));
      context.lineTo(x(curve[i]), y(curve[i + 1]));
    }
    context.lineTo(x(this.result.makespan_s), y(curve[curve.length - 1]));
    context.lineTo(x(this.result.makespan_s), height);
    context.fill();
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = context.strokeStyle = ink("--bad");
    if (capacity) {
      context.setLineDash([5, 4]);
      context.beginPath();
      context.moveTo(0, y(capacity)); context.lineTo(width, y(capacity));
      context.stroke();
      context.setLineDash([]);
      context.strokeStyle = ink("--idle");  // around the words, which may stand on the curve
      context.lineWidth = 4;
      context.strokeText(`has ${bytes(capacity)}`, 4, y(capacity) - 4);
      context.fillText(`has ${bytes(capacity)}`, 4, y(capacity) - 4);
    }
    context.fillStyle = ink("--ink");
    context.textAlign = "right";
    context.fillText(`peak ${bytes(this.result.devices[device].peak_memory_bytes)}`, width - 4, 12);
  }

  at(clientX, clientY) {
    const box = this.timeline.getBoundingClientRect(), d = Math.floor((clientY - box.top) / this.row);
    const s = view.from + (clientX - box.left) / box.width * (view.to - view.from);
    if (!this.arrays?.count || d < 0 || d >= this.arrays.ends.length) return null;
    const op = this.op(this.latest(d, s));
    return op.start <= s && s <= op.end ? {...op, device: d} : null;
  }

  deviceOf(g) { return this.arrays.ends.findIndex(end => g < end); }

  /// The last op of a device that has begun at s, else its first.
  latest(d, s) {
    let low = d ? this.arrays.ends[d - 1] : 0, high = this.arrays.ends[d] - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      this.arrays.spans[2 * middle] <= s ? low = middle : high = middle - 1;
    }
    return low;
  }

  /// By the keyboard: so many ops on, or to what another device does at that time.
  walk(ops, devices) {
    if (!this.arrays?.count) return;
    const {ends, spans} = this.arrays, within = (least, value, most) => Math.max(least, Math.min(value, most));
    if (this.walked === null) {
      this.walked = this.latest(0, view.from);
    } else {
      const d = this.deviceOf(this.walked);
      this.walked = devices ? this.latest(within(0, d + devices, ends.length - 1), spans[2 * this.walked])
        : within(d ? ends[d - 1] : 0, this.walked + ops, ends[d] - 1);
    }
    const op = this.op(this.walked), d = this.deviceOf(this.walked), wide = view.to - view.from;
    if (op.start < view.from || op.end > view.to) look(op.start - wide / 2, op.start + wide / 2);
    else this.drawTimeline();
    const box = this.timeline.getBoundingClientRect();
    tell({...op, device: d}, box.left + (op.start - view.from) / (view.to - view.from) * box.width, box.top + (d + 1) * this.row);
  }

  /// Of who serves this page: all of the engine.
  async ask() {
    const said = find(".said", this.element), scenario = this.scenario;
    said.textContent = "SimGrid is at work";
    try {
      const response = await fetch(behind.content, {method: "POST", body: JSON.stringify({scenario, engine: "simgrid"})});
      const {result, problems} = await response.json();
      if (scenario !== this.scenario) return;
      said.textContent = result ? `SimGrid: update ${time(result.iteration_time_s ?? result.makespan_s)}, run of ${time(result.makespan_s)}, bubble ${percent(result.bubble_fraction)}`
        : problems.map(p => p.rendered).join("\n");
    } catch (error) {
      said.textContent = `nobody answers: ${error.message}`;
    }
  }

  openReport() {
    const answer = call("penstock_report", ["number"], [this.number]);
    const link = Object.assign(document.createElement("a"), {target: "_blank", rel: "noopener",
      href: URL.createObjectURL(new Blob([answer.page ?? answer.problems[0].message], {type: "text/html"}))});
    link.click();
  }
}

function prepared(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return {context, width, height};
}

function axis(context, width, top) {
  const span = view.to - view.from, raw = span / Math.max(2, width / 110), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(k => k * power).find(k => k >= raw);
  context.fillStyle = ink("--faint");
  context.textAlign = "left";
  for (let s = Math.ceil(view.from / step) * step; s < view.to; s += step)
    context.fillText(time(+s.toPrecision(12)), (s - view.from) / span * width + 2, top + 9);
}

// --- looking around ------------------------------------------------------------------------------
function longest() {
  return Math.max(...sides.map(side => side.arrays ? side.result.makespan_s : 0)) || 1;
}
function look(from, to) {
  const end = longest(), wide = Math.min(end, Math.max(end / 5000, to - from));
  view.from = Math.max(0, Math.min(from, end - wide));
  view.to = view.from + wide;
  requestAnimationFrame(() => sides.forEach(side => { if (side.arrays) { side.drawTimeline(); side.drawMemory(); } }));
}
function zoom(factor, at = 0.5) {
  const wide = view.to - view.from, middle = view.from + at * wide;
  look(middle - at * wide * factor, middle + (1 - at) * wide * factor);
}

function listen(side) {
  const canvas = side.timeline, pointers = new Map();
  const part = event => { const box = canvas.getBoundingClientRect(); return (event.clientX - box.left) / box.width; };
  canvas.addEventListener("wheel", event => { event.preventDefault(); zoom(1.0015 ** event.deltaY, part(event)); }, {passive: false});
  canvas.addEventListener("pointerdown", event => { pointers.set(event.pointerId, part(event)); canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", event => {
    if (!pointers.has(event.pointerId)) return hint(side, event);
    const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
    const was = pointers.get(event.pointerId), is = part(event), wide = view.to - view.from;
    pointers.set(event.pointerId, is);
    if (others.length) zoom(Math.abs(was - others[0]) / Math.max(0.02, Math.abs(is - others[0])), (is + others[0]) / 2);
    else look(view.from - (is - was) * wide, view.to - (is - was) * wide);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, event => { pointers.delete(event.pointerId); hint(side, event); });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("keydown", event => {
    const wide = view.to - view.from;
    const moves = {ArrowLeft: () => look(view.from - wide / 8, view.to - wide / 8), ArrowRight: () => look(view.from + wide / 8, view.to + wide / 8),
      ArrowUp: () => side.walk(0, -1), ArrowDown: () => side.walk(0, 1), ",": () => side.walk(-1, 0), ".": () => side.walk(1, 0),
      "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), 0: () => look(0, longest())};
    if (!(event.key in moves)) return;
    event.preventDefault();
    moves[event.key]();
  });
  canvas.addEventListener("blur", () => {
    tip.hidden = true;
    side.walked = null;
    if (side.arrays) side.drawTimeline();
  });
}

function hint(side, event) {
  const op = side.at(event.clientX, event.clientY);
  if (op) tell(op, event.clientX, event.clientY);
  else tip.hidden = true;
}
function tell(op, x, y) {
  tip.hidden = false;
  const weights = op.kind.length === 1 ? `\nweights: version ${op.version}` : "";
  tip.textContent = `${WORDS[op.kind] ?? op.kind}, microbatch ${op.microbatch}\ndevice ${op.device}, stage ${op.stage}\n${time(op.start)} to ${time(op.end)} (${time(op.end - op.start)})${weights}`;
  tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - 230))}px`;
  tip.style.top = `${y + 14}px`;
}

// --- together ------------------------------------------------------------------------------------
const sides = all(".side").map((element, number) => new Side(number, element));
function update() {
  const began = performance.now(), state = chosen();
  for (const label of all("label", form)) {
    const output = find("output", label);
    if (output) output.textContent = find("input", label).value;
  }
  for (const part of all("[data-costs]", form)) part.hidden = part.dataset.costs !== state.costs;
  sides[1].element.hidden = !state.beside;
  find("#shown").classList.toggle("two", !!state.beside);
  sides[0].simulate(state.schedule, scenarioOf(state, state.schedule));
  if (state.beside) sides[1].simulate(state.beside, scenarioOf(state, state.beside));
  else sides[1].arrays = null;
  view.from = 0;
  view.to = longest();
  sides.forEach(side => side.draw());
  const took = performance.now() - began;
  find("#took").textContent = `Simulated and drawn in ${took.toFixed(0)} ms.`;
  keepInLink(state);
  window.playground = {took, sides, simulate: (side, text) => call("penstock_simulate", ["number", "string"], [side, text]), scenario: name => scenarioOf(chosen(), name), file};
}
const file = name => call("penstock_file", ["string"], [name]).text;

let waiting = 0;
form.addEventListener("input", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(update); });
form.addEventListener("submit", event => event.preventDefault());
form.shipped.addEventListener("input", () => {
  if (!form.shipped.value) return;
  form.text.value = file(`scenarios/${form.shipped.value}.yaml`);
  const own = /^"?schedule"?: *"?([a-z0-9-]+)"?/m.exec(form.text.value)?.[1];
  if (schedules.has(own)) form.schedule.value = own;
});
find("#download").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([sides[0].scenario], {type: "application/yaml"}));
  link.download = `${sides[0].name}.yaml`;
  link.click();
});
find("#link").addEventListener("click", () => navigator.clipboard?.writeText(location.href));
find("#reset").addEventListener("click", () => { show(USUAL); update(); });
addEventListener("resize", () => sides.forEach(side => side.draw()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => sides.forEach(side => side.draw()));
addEventListener("hashchange", () => { show(stateOfLink()); update(); });

show(stateOfLink());
update();
})();
