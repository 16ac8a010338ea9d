// SPDX-License-Identifier: Apache-2.0
// The timeline: a lane per device, a box per op. A lane's boxes of one kind are one shape, and only
// those in view become part of it, so that 65,536 ops are drawn in a few milliseconds.
const KINDS = [
  // as program/vocabulary.hpp orders them
  {token: 'F', name: 'forward', colour: '--F'},
  {token: 'B', name: 'backward', colour: '--B'},
  {token: 'I', name: 'backward, input', colour: '--I'},
  {token: 'W', name: 'backward, weights', colour: '--W'},
  {token: 'REDUCE_GRAD', name: 'gradient reduction', colour: '--R'},
  {token: 'STEP', name: 'optimizer step', colour: '--S'},
];
const RECOMPUTATION = 'recomputation';
const MESSAGES = 'messages to the device';
const UPDATES = 'ends of updates';
const KEYS = 'Ctrl and the wheel, or + and −, zoom; dragging or the arrows move; Shift and arrows go ' +
    'from op to op.';
const PALE = 0.5;        // of two timelines above each other the first, predicted
const RECOMPUTED = 0.3;  // of a box's height
const NO_TIME = 0xffffffff;
const MOST_LABELS = 1500;
const MOST_UPDATE_LINES = 300;
const LANES_AT_ONCE = 64;
const HALF = {
  whole: 0,
  upper: 1,
  lower: 2
};

/** Rectangles as one path: x, y, width, height of each in `rects`. */
const Boxes = echarts.graphic.extendShape({
  shape: {rects: []},
  buildPath(context, {rects}) {
    for (let i = 0; i < rects.length; i += 4)
      context.rect(rects[i], rects[i + 1], rects[i + 2], rects[i + 3]);
  },
});
echarts.graphic.registerShape('boxes', Boxes);

class Lane {
  constructor(data, tick) {
    this.name = data.name;
    this.clock = data.clock;
    this.tick = tick;
    this.start = unpack(data.start, Uint32Array);
    this.end = unpack(data.end, Uint32Array);
    this.microbatch = unpack(data.microbatch, Uint32Array);
    this.stage = unpack(data.stage, Uint16Array);
    this.kind = unpack(data.kind, Uint8Array);  // and the half of the lane, in the upper bits
    this.recompute = unpack(data.recompute, Uint8Array);
    this.sent = unpack(data.sent, Uint32Array);
    this.arrived = unpack(data.arrived, Uint32Array);
    // Boxes overlap (pairs, messages), so the first in view is found by the largest end so far.
    this.reach = new Float64Array(this.start.length);
    for (let i = 0, most = 0; i < this.start.length; ++i) {
      const arrived = this.sent.length && this.arrived[i] !== NO_TIME ? this.arrived[i] : 0;
      most = Math.max(most, this.end[i], arrived);
      this.reach[i] = most;
    }
  }

  get size() { return this.start.length; }
  kindOf(i) { return this.kind[i] & 15; }
  halfOf(i) { return this.kind[i] >> 4; }
  startOf(i) { return this.start[i] * this.tick; }
  endOf(i) { return this.end[i] * this.tick; }
  token(i) { return `${this.stage[i]}${KINDS[this.kindOf(i)].token}${this.microbatch[i]}`; }
  hasMessage(i) { return this.sent.length > 0 && this.sent[i] !== NO_TIME; }

  /** The first box that may end after `time`. */
  firstAfter(time) {
    let low = 0, high = this.size;
    const ticks = time / this.tick;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.reach[middle] > ticks)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  /**
   * The box at a time, in this half of the lane; within `slack` seconds where none is right there.
   */
  at(time, lower, slack, shown) {
    let best = -1, nearest = slack;
    for (let i = this.firstAfter(time - slack); i < this.size && this.startOf(i) <= time + slack;
         ++i) {
      const half = this.halfOf(i);
      if (!shown(this.kindOf(i)) || (half !== HALF.whole && (half === HALF.lower) !== lower))
        continue;
      const away = Math.max(this.startOf(i) - time, time - this.endOf(i), 0);
      if (away <= nearest) {
        nearest = away;
        best = i;
      }
    }
    return best;
  }

  messageAt(time) {
    // Messages arrive before their op starts; the op may be one of the next.
    for (let i = this.firstAfter(time); i < Math.min(this.size, this.firstAfter(time) + 64); ++i) {
      if (this.hasMessage(i) && this.sent[i] * this.tick <= time &&
          time < this.arrived[i] * this.tick)
        return i;
    }
    return -1;
  }
}

/** Adds boxes no narrower than half a pixel, leaving out what would not be seen. */
class BoxList {
  constructor() {
    this.rects = [];
    this.right = -Infinity;
  }
  add(left, right, top, height) {
    if (right <= this.right) return;
    if (right - left < 0.5) right = left + 0.5;
    this.rects.push(left, top, right - left, height);
    this.right = right - 0.25;
  }
}

class Timeline extends Figure {
  constructor(section) {
    super(section);
    this.lanes = section.lanes.map(lane => new Lane(lane, section.tick_s));
    this.kinds =
        KINDS.map((_, k) => k).filter(k => this.some(lane => lane.kind, v => (v & 15) === k));
    this.recomputes = this.some(lane => lane.recompute, v => v > 0);
    this.receives = this.some(lane => lane.sent, v => v !== NO_TIME);
    this.aligned = section.clocks.length > 1 ? section.first_update : 0;
    this.cursor = {lane: 0, bar: -1};
    const {first_update: first, end_update: end} = section;
    if (end > first || section.window_s) this.showUpdates(first, end);
    if (section.open_to_s > section.open_from_s) this.showTimes(section.open_from_s, section.open_to_s);
  }

  some(values, test) { return this.lanes.some(lane => values(lane).some(test)); }
  title() { return 'Timeline'; }
  build() {
    const node = super.build();
    node.append(element('p', {class: 'note keys'}, KEYS));
    return node;
  }
  get zooms() { return true; }
  get range() { return [this.from, this.to]; }
  get laneHeight() { return this.lanes.length > 32 ? 13 : this.lanes.length > 12 ? 20 : 30; }
  get gapPixels() { return this.section.clocks.length > 1 ? 0.12 : 0.16; }
  height() { return Math.min(this.lanes.length, LANES_AT_ONCE) * this.laneHeight + 104; }
  shown(kind) { return !this.hidden.has(KINDS[kind].name); }

  /** What is taken off a clock's times: it shows `aligned` at 0. */
  offset(clock) {
    if (this.section.clocks.length < 2) return 0;
    return this.section.clocks[clock].ends[this.aligned] ?? 0;
  }
  get from() { return Math.min(...this.section.clocks.map((_, c) => -this.offset(c))); }
  get to() {
    const end = this.section.axis_s ?? this.section.end_s;
    return Math.max(...this.section.clocks.map((_, c) => end - this.offset(c)));
  }

  showTimes(from, to) {
    const share = time => Math.min(100, (time - this.from) / (this.to - this.from) * 100);
    this.window = [share(from), share(to)];
  }

  showUpdates(first, end) {
    const clocks = this.section.clocks;
    const lengths = clocks.map(c => (c.ends[end] ?? this.section.end_s) - (c.ends[first] ?? 0));
    lengths.push(this.section.window_s ?? 0);
    const begin = clocks.length > 1 ? 0 : clocks[0].ends[first] ?? 0;
    const share = time => (time - this.from) / (this.to - this.from) * 100;
    this.window =
        [Math.max(0, share(begin)), Math.min(100, share(begin + Math.max(...lengths) * 1.02))];
  }

  controls() {
    const {clocks} = this.section;
    const updates = Math.min(...clocks.map(c => c.ends.length));
    if (clocks.length < 2 || updates < 2) return [];
    const choices =
        Array.from({length: updates - 1}, (_, u) => [u, u ? `update ${u}` : 'the start'])
            .filter(([u]) => clocks.every(c => c.ends[u] !== null));
    return [selector('Together at', choices, this.aligned, value => {
      this.aligned = Number(value);
      this.showUpdates(this.aligned, Math.min(this.aligned + 1, updates - 1));
      this.changed();
    })];
  }

  legend() {
    const entries = this.kinds.map(k => ({name: KINDS[k].name, colour: css(KINDS[k].colour)}));
    if (this.recomputes) entries.push({name: RECOMPUTATION, colour: css('--recompute')});
    if (this.receives) entries.push({name: MESSAGES, colour: css('--message')});
    if (this.section.clocks[0].ends.length > 1) entries.push({name: UPDATES, colour: css('--ink')});
    return [...entries, {name: 'idle', colour: css('--idle'), fixed: true}];
  }

  option() {
    const scale = axisText('time', 's', this.to - this.from);
    const {ink, paper} = this.colours;
    const many = this.lanes.length > LANES_AT_ONCE;
    const series = [
      this.series(
          'lanes', css('--idle'), (lane, box) => this.wholeLane(lane, box), {silent: false}),
      ...this.kinds.map(
          k => this.series(
              KINDS[k].name, css(KINDS[k].colour), (lane, box) => this.boxesOf(k, lane, box),
              {stroke: this.lanes.length <= LANES_AT_ONCE ? paper : null})),
      this.series(RECOMPUTATION, css('--recompute'), (lane, box) => this.recomputed(lane, box)),
      this.series(MESSAGES, css('--message'), (lane, box) => this.messages(lane, box)),
      this.series(UPDATES, ink, (lane, box) => this.updateEnds(lane, box)),
      {...this.base('labels'), renderItem: (params, api) => this.labels(params, api)},
    ];
    const zoom = this.zoomOption();
    if (many) {
      zoom.push({
        type: 'slider',
        yAxisIndex: 0,
        filterMode: 'none',
        width: 14,
        right: 4,
        showDataShadow: false,
        labelFormatter: '',
        brushSelect: false,
        startValue: 0,
        endValue: LANES_AT_ONCE - 1
      });
    }
    return {
      grid: {
        left: 8 + 6.6 * Math.max(...this.lanes.map(l => l.name.length)),
        right: many ? 34 : 16,
        top: 8,
        bottom: 72
      },
      xAxis: this.axis({
        type: 'value',
        min: this.from,
        max: this.to,
        nameLocation: 'middle',
        nameGap: 26,
        ...scale,
        axisLabel: {...scale.axisLabel, hideOverlap: true, showMinLabel: false, showMaxLabel: false}
      }),
      yAxis: this.axis({
        type: 'category',
        inverse: true,
        data: this.lanes.map(l => l.name),
        axisTick: {show: false},
        splitLine: {show: false}
      }),
      dataZoom: zoom,
      series,
    };
  }

  base(name) {
    return {
      type: 'custom',
      name,
      coordinateSystem: 'cartesian2d',
      clip: true,
      silent: true,
      encode: {x: 0, y: 1},
      data: this.lanes.map((_, i) => [this.from, i]),
      progressive: 0,
      emphasis: {disabled: true}
    };
  }

  isPale(lane) { return this.section.clocks.length > 1 && lane.clock === 0; }

  /** A shape per lane; `boxes` gives the rectangles. */
  series(name, fill, boxes, {silent = true, stroke = null} = {}) {
    return {
      ...this.base(name),
      silent,
      renderItem: (params, api) => {
        const index = params.dataIndexInside;
        const box = this.laneBox(params, api, index);
        if (!box) return null;
        const wide = stroke && this.pixelsPerOp(box) > 6;
        const opacity = silent && this.isPale(this.lanes[index]) ? PALE : 1;
        const style =
            {fill, opacity, stroke: wide ? stroke : null, lineWidth: wide ? 1 : 0};
        return {
          type: 'boxes',
          shape: {rects: boxes(this.lanes[index], box)},
          style,
          silent,
          emphasisDisabled: true
        };
      }
    };
  }

  /** Where a lane is on the screen, and how its times become pixels; null: not in view. */
  laneBox(params, api, index) {
    const middle = api.coord([this.from, index])[1];
    const band = api.size([0, 1])[1];
    const {x: left, y, width, height} = params.coordSys;
    if (middle < y - band || middle > y + height + band) return null;
    const origin = api.coord([0, index])[0];
    const pixels = api.coord([1, index])[0] - origin;  // a second
    const offset = this.offset(this.lanes[index].clock);
    const x = time => origin + (time - offset) * pixels;
    const gap = band * this.gapPixels;
    return {
      x,
      pixels,
      left,
      right: left + width,
      top: middle - band / 2 + gap / 2,
      height: band - gap,
      first: (left - origin) / pixels + offset,
      last: (left + width - origin) / pixels + offset
    };
  }

  pixelsPerOp(box) {
    this.mostOps ??= this.lanes.reduce((most, lane) => Math.max(most, lane.size), 1);
    return box.pixels * this.section.end_s / this.mostOps;
  }

  wholeLane(lane, box) {
    const left = Math.max(box.left, box.x(0));
    return [left, box.top, Math.min(box.right, box.x(this.section.end_s)) - left, box.height];
  }

  /** Calls `visit` for every box in view. */
  inView(lane, box, visit) {
    for (let i = lane.firstAfter(box.first); i < lane.size; ++i) {
      if (lane.startOf(i) > box.last &&
          !(lane.hasMessage(i) && lane.sent[i] * lane.tick < box.last)) {
        if (!lane.sent.length || lane.startOf(i) > box.last + this.longestWait) break;
        continue;
      }
      visit(i);
    }
  }

  /** From a message's departure to the start of its op, at most. */
  get longestWait() {
    if (this.waits !== undefined) return this.waits;
    this.waits = 0;
    for (const lane of this.lanes) {
      for (let i = 0; i < lane.sent.length; ++i) {
        if (lane.hasMessage(i))
          this.waits = Math.max(this.waits, lane.startOf(i) - lane.sent[i] * lane.tick);
      }
    }
    return this.waits;
  }

  /** Details inside of boxes that are a pixel wide would only take time. */
  tooFine(box) { return this.pixelsPerOp(box) < 1.5; }

  messageHeight(box) {
    return this.receives && !this.hidden.has(MESSAGES) && !this.tooFine(box) ?
        Math.max(1, box.height * 0.16) :
        0;
  }

  /** Top and height of a box in its lane. */
  span(lane, i, box) {
    const height = box.height - this.messageHeight(box);
    const half = lane.halfOf(i);
    if (half === HALF.whole) return [box.top, height];
    return [box.top + (half === HALF.lower ? height / 2 : 0), height / 2];
  }

  boxesOf(kind, lane, box) {
    const list = new BoxList();
    this.inView(lane, box, i => {
      if (lane.kindOf(i) !== kind || lane.end[i] === lane.start[i]) return;
      list.add(
          Math.max(box.left, box.x(lane.startOf(i))), Math.min(box.right, box.x(lane.endOf(i))),
          ...this.span(lane, i, box));
    });
    return list.rects;
  }

  recomputed(lane, box) {
    const list = new BoxList();
    if (!this.recomputes || this.tooFine(box)) return list.rects;
    this.inView(lane, box, i => {
      if (!lane.recompute[i] || !this.shown(lane.kindOf(i))) return;
      const end = lane.startOf(i) + (lane.endOf(i) - lane.startOf(i)) * lane.recompute[i] / 255;
      if (end < box.first) return;
      const [top, height] = this.span(lane, i, box);
      list.add(
          Math.max(box.left, box.x(lane.startOf(i))), Math.min(box.right, box.x(end)),
          top + height * (1 - RECOMPUTED), height * RECOMPUTED);
    });
    return list.rects;
  }

  messages(lane, box) {
    const list = new BoxList();
    const height = this.messageHeight(box);
    if (!height) return list.rects;
    this.inView(lane, box, i => {
      if (!lane.hasMessage(i)) return;
      const [from, to] = [box.x(lane.sent[i] * lane.tick), box.x(lane.arrived[i] * lane.tick)];
      if (to < box.left || from > box.right) return;
      list.add(
          Math.max(box.left, from), Math.min(box.right, to), box.top + box.height - height, height);
    });
    return list.rects;
  }

  updateEnds(lane, box) {
    const ends = this.section.clocks[lane.clock].ends.filter(
        t => t !== null && t > box.first && t <= box.last);
    if (ends.length > MOST_UPDATE_LINES) return [];
    return ends.flatMap(t => [box.x(t) - 0.75, box.top - 1, 1.5, box.height + 2]);
  }

  /** Microbatches, where boxes are wide enough. */
  labels(params, api) {
    const index = params.dataIndexInside;
    if (index === 0) this.labelled = 0;
    const lane = this.lanes[index];
    const box = this.laneBox(params, api, index);
    if (!box || this.pixelsPerOp(box) < 2 || box.height < 10) return null;
    const children = [];
    const pale = colour => between([css('--idle'), colour], PALE);
    const inks = KINDS.map(kind => css(kind.colour))
                     .map(colour => inkOn(this.isPale(lane) ? pale(colour) : colour));
    this.inView(lane, box, i => {
      const left = Math.max(box.left, box.x(lane.startOf(i)));
      const right = Math.min(box.right, box.x(lane.endOf(i)));
      const text = String(lane.microbatch[i]);
      const [top, whole] = this.span(lane, i, box);
      const height = whole * (lane.recompute[i] ? 1 - RECOMPUTED : 1);
      if (right - left < 4 + 6.2 * text.length || height < 7.5 || !this.shown(lane.kindOf(i))) return;
      if (++this.labelled > MOST_LABELS) return;
      children.push({
        type: 'text',
        silent: true,
        style: {
          text,
          x: (left + right) / 2,
          y: top + height / 2,
          align: 'center',
          verticalAlign: 'middle',
          fill: inks[lane.kindOf(i)],
          font: '10.5px system-ui, sans-serif'
        }
      });
    });
    return {type: 'group', children, silent: true};
  }

  // --- what a box says

  connect(chart) {
    chart.getZr().on('mousemove', event => {
      this.pointer = [event.offsetX, event.offsetY];
    });
    return super.connect(chart);
  }

  tooltip() { return {trigger: 'item', formatter: () => this.tipAt(...this.pointer)}; }

  tipAt(x, y) {
    const [time, row] = this.chart.convertFromPixel({gridIndex: 0}, [x, y]);
    const lane = this.lanes[row];
    if (!lane) return '';
    const seconds = time + this.offset(lane.clock);
    const slack =
        2 * (this.seen[1] - this.seen[0]) / 100 * (this.to - this.from) / this.chart.getWidth();
    const middle = this.chart.convertToPixel({gridIndex: 0}, [0, row])[1];
    const bar = lane.at(seconds, y > middle, slack, kind => this.shown(kind));
    if (bar >= 0) return this.barTip(lane, bar);
    const message = lane.messageAt(seconds);
    if (message >= 0) return this.messageTip(lane, message);
    return tip(`${lane.name}: idle`, [['at', formatMoment(time)]]);
  }

  barTip(lane, i) {
    const kind = KINDS[lane.kindOf(i)];
    const offset = this.offset(lane.clock);
    const time = seconds => formatMoment(seconds - offset);
    const rows = [
      [kind.name, lane.name, css(kind.colour)], ['stage', String(lane.stage[i])],
      ['microbatch', String(lane.microbatch[i])], ['from', time(lane.startOf(i))],
      ['to', time(lane.endOf(i))], ['length', format(lane.endOf(i) - lane.startOf(i), 's')]
    ];
    if (lane.recompute[i]) {
      rows.push([
        RECOMPUTATION, format((lane.endOf(i) - lane.startOf(i)) * lane.recompute[i] / 255, 's'),
        css('--recompute')
      ]);
    }
    if (lane.hasMessage(i))
      rows.push([
        'its message', `${time(lane.sent[i] * lane.tick)} to ${time(lane.arrived[i] * lane.tick)}`,
        css('--message')
      ]);
    return tip(lane.token(i), rows);
  }

  messageTip(lane, i) {
    return tip(`message for ${lane.token(i)}`, [
      ['in flight', format((lane.arrived[i] - lane.sent[i]) * lane.tick, 's'), css('--message')]
    ]);
  }

  // --- keys: Shift and arrows go from op to op

  arrow(direction, shift) {
    if (!shift) return super.arrow(direction, false);
    const lane = this.lanes[this.cursor.lane];
    const from = this.cursor.bar < 0 ?
        lane.firstAfter(
            this.seen[0] / 100 * (this.to - this.from) + this.from + this.offset(lane.clock)) -
            1 :
        this.cursor.bar;
    this.visit(Math.min(Math.max(from + direction, 0), lane.size - 1));
  }

  otherKey(event) {
    const direction = {ArrowUp: -1, ArrowDown: 1}[event.key];
    if (!direction || !event.shiftKey) return;
    event.preventDefault();
    const before = this.lanes[this.cursor.lane];
    this.cursor.lane = (this.cursor.lane + direction + this.lanes.length) % this.lanes.length;
    const lane = this.lanes[this.cursor.lane];
    const time = this.cursor.bar < 0 ? 0 : before.startOf(this.cursor.bar);
    this.visit(Math.min(lane.firstAfter(time), lane.size - 1));
  }

  visit(bar) {
    const lane = this.lanes[this.cursor.lane];
    if (!lane.size) return;
    this.cursor.bar = bar;
    const middle = (lane.startOf(bar) + lane.endOf(bar)) / 2 - this.offset(lane.clock);
    const at = (middle - this.from) / (this.to - this.from) * 100;
    const [start, end] = this.seen;
    if (at < start || at > end) this.setWindow([at - (end - start) / 2, at + (end - start) / 2]);
    const [x, y] = this.chart.convertToPixel({gridIndex: 0}, [middle, this.cursor.lane]);
    this.pointer = [x, y - 1];
    this.chart.dispatchAction({type: 'showTip', x, y: y - 1});
    this.say();
  }

  tableData() {
    const before = [0];
    for (const lane of this.lanes) before.push(before.at(-1) + lane.size);
    const laneOf = new Uint16Array(before.at(-1));
    this.lanes.forEach((_, l) => laneOf.fill(l, before[l], before[l + 1]));
    const cells = [
      (lane) => lane.name,
      (lane, i) => lane.token(i),
      (lane, i) => KINDS[lane.kindOf(i)].name,
      (lane, i) => lane.stage[i],
      (lane, i) => lane.microbatch[i],
      (lane, i) => lane.startOf(i),
      (lane, i) => lane.endOf(i),
      (lane, i) => lane.endOf(i) - lane.startOf(i),
    ];
    return {
      columns: [
        {name: 'lane'}, {name: 'op'}, {name: 'kind'}, {name: 'stage'}, {name: 'microbatch'},
        {name: 'start', unit: 's', digits: MOMENT_DIGITS},
        {name: 'end', unit: 's', digits: MOMENT_DIGITS}, {name: 'length', unit: 's'}
      ],
      rows: before.at(-1),
      cell: (row, column) => cells[column](this.lanes[laneOf[row]], row - before[laneOf[row]]),
    };
  }
}
