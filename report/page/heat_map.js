// SPDX-License-Identifier: Apache-2.0
// A measure over two axes of a sweep. Where other axes vary too, a cell shows its best point, or
// the one at their chosen values; a cell without a feasible point is crossed out, with the reason.
const BEST = '';
const MOST_CELL_LABELS = 400;

class HeatMap extends Figure {
  constructor(section, points) {
    super(section);
    this.points = points;
    const varied = points.axes.filter(axis => axis.choices.length > 1);
    const axes = varied.length > 1 ? varied : points.axes;
    // The two longest axes in the order in which they were given.
    const longest = [...axes].sort((a, b) => b.choices.length - a.choices.length).slice(0, 2);
    [this.x, this.y] = axes.filter(axis => longest.includes(axis));
    this.measure = points.named(section.heat_measure) ?? points.measures[0];
    this.fixed = new Map();  // of the other axes: name -> place of the value, or BEST
  }

  title() {
    return `${spaced(this.measure.name)} over ${spaced(this.x.name)} and ${spaced(this.y.name)}`;
  }
  height() { return Math.min(Math.max(this.y.choices.length * 22, 160), 720) + 110; }
  /** What else can be chosen; not what follows from another axis, as of keys that move together. */
  get others() {
    const kept = [this.x, this.y];
    for (const axis of this.points.axes) {
      if (kept.includes(axis) || axis.choices.length < 2) continue;
      if (!kept.some(a => this.points.follows(axis, a))) kept.push(axis);
    }
    return kept.slice(2);
  }

  controls() {
    const {axes, measures} = this.points;
    const axis = name => axes.find(a => a.name === name);
    const choose = (mine, other) => name => {
      if (this[other].name === name) this[other] = this[mine];  // swapped
      this[mine] = axis(name);
      this.changed();
    };
    return [
      selector(
          'Measure', columnChoices(measures), this.measure.name,
          name => {
            this.measure = this.points.named(name);
            this.changed();
          }),
      selector('across', columnChoices(axes), this.x.name, choose('x', 'y')),
      selector('up', columnChoices(axes), this.y.name, choose('y', 'x')),
      ...this.others.map(
          other => selector(
              spaced(other.name),
              [[BEST, 'best'], ...other.choices.map((value, i) => [i, format(value, other.unit)])],
              this.fixed.get(other.name) ?? BEST,
              value => {
                this.fixed.set(other.name, value);
                this.changed();
              })),
    ];
  }

  /** Per cell the row of the best point; of cells without one, any row that says why. */
  cells() {
    const {points, measure, x, y} = this;
    const wide = x.choices.length;
    const best = new Map();
    const fixed =
        this.others.map(o => [o, this.fixed.get(o.name) ?? BEST]).filter(([, at]) => at !== BEST);
    for (let row = 0; row < points.size; ++row) {
      if (fixed.some(([other, at]) => other.place(row) !== Number(at))) continue;
      const cell = y.place(row) * wide + x.place(row);
      const other = best.get(cell);
      if (other === undefined || this.beats(row, other)) best.set(cell, row);
    }
    return [...best].map(([cell, row]) => ({
                           x: cell % wide,
                           y: Math.floor(cell / wide),
                           row,
                           value: points.ok(row) ? measure.value(row) : null
                         }));
  }

  beats(row, other) {
    const usable = r => this.points.ok(r) && this.measure.value(r) !== null;
    if (!usable(row) || !usable(other)) return usable(row) && !usable(other);
    return isBetter(this.measure.better, this.measure.value(row), this.measure.value(other));
  }

  option() {
    const cells = this.shown = this.cells();
    this.good = cells.filter(c => c.value !== null);
    this.crossed = cells.filter(c => c.value === null);
    const values = this.good.map(c => c.value);
    const [least, most] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
    this.limits = [least, most > least ? most : least + 1];
    this.chosen = this.limits;
    const scale = scaleOf(this.measure.unit, most);
    const text = axis => axis.choices.map(value => format(value, axis.unit));
    const {faint, ink} = this.colours;
    const room = 26 + 6.6 * Math.max(...text(this.y).map(t => t.length));
    const cellWidth = (this.canvas.clientWidth - room - 12) / this.x.choices.length;
    const labelWidth = 10 + 6.6 * Math.max(...text(this.x).map(t => t.length));
    const cellHeight = (this.height() - 100) / this.y.choices.length;
    return {
      grid: {left: room, right: 12, top: 54, bottom: 46},
      xAxis: this.axis({
        type: 'category',
        data: text(this.x),
        name: spaced(this.x.name),
        nameLocation: 'middle',
        nameGap: 28,
        axisLabel: {interval: Math.ceil(labelWidth / cellWidth) - 1},
        splitLine: {show: false}
      }),
      yAxis: this.axis({
        type: 'category',
        data: text(this.y),
        name: spaced(this.y.name),
        nameLocation: 'middle',
        nameGap: room - 18,
        axisLabel: {interval: Math.ceil(14 / cellHeight) - 1},
        splitLine: {show: false}
      }),
      visualMap: {
        seriesIndex: 0,
        min: this.limits[0],
        max: this.limits[1],
        calculable: true,
        orient: 'horizontal',
        left: 'right',
        top: 0,
        itemWidth: 14,
        itemHeight: 160,
        inRange: {color: ramp()},
        textStyle: {color: ink},
        formatter: value => formatIn(value, scale),
        dimension: 2,
        outOfRange: {color: this.colours.idle}
      },
      series: [
        {
          type: 'heatmap',
          name: this.measure.name,
          progressive: 0,
          data: this.labelled(),
          itemStyle: {
            borderColor: this.colours.paper,
            borderWidth: Math.min(cellWidth, cellHeight) > 12 ? 1 : 0
          },
          emphasis: {itemStyle: {borderColor: ink, borderWidth: 2}},
          label: {
            show: cells.length <= MOST_CELL_LABELS && cellWidth > 44,
            fontSize: 10.5,
            formatter: p => formatNumber(p.value[2] / scale.factor)
          }
        },
        {
          type: 'custom',
          name: 'infeasible',
          coordinateSystem: 'cartesian2d',
          encode: {x: 0, y: 1},
          data: this.crossed.map(c => [c.x, c.y]),
          progressive: 0,
          renderItem: (params, api) => this.cross(api, faint)
        },
      ],
    };
  }

  /** The cells, each with the ink of its number. */
  labelled() {
    const [least, most] = this.limits, [from, to] = this.chosen;
    const ink = v => v < from || v > to ? this.colours.ink :
                                          inkOn(between(ramp(), (v - least) / (most - least)));
    return this.good.map(
        ({x, y, value}) => ({value: [x, y, value], label: {color: ink(value)}}));
  }

  connect(chart) {
    chart.on('datarangeselected', ({selected}) => {
      this.chosen = selected;
      chart.setOption({series: [{name: this.measure.name, data: this.labelled()}]});
    });
    return super.connect(chart);
  }

  /** A grey cell with a diagonal cross. */
  cross(api, colour) {
    const [x, y] = api.coord([api.value(0), api.value(1)]);
    const [w, h] = api.size([1, 1]);
    const [left, top, right, bottom] =
        [x - w / 2 + 0.5, y - h / 2 + 0.5, x + w / 2 - 0.5, y + h / 2 - 0.5];
    const line = (x1, y1, x2, y2) => ({
      type: 'line',
      shape: {x1, y1, x2, y2},
      style: {stroke: colour, lineWidth: 1},
      silent: true
    });
    const arm = Math.min(w, h) * 0.2;
    const cell = {
      type: 'rect',
      shape: {x: left, y: top, width: right - left, height: bottom - top},
      style: {fill: this.colours.idle}
    };
    const arms =
        [line(x - arm, y - arm, x + arm, y + arm), line(x - arm, y + arm, x + arm, y - arm)];
    return {type: 'group', children: arm < 1 ? [cell] : [cell, ...arms]};
  }

  legend() {
    return [{name: 'grey, crossed out: infeasible or failed', colour: css('--idle'), fixed: true}];
  }

  tooltip() {
    return {
      trigger: 'item',
      formatter: p => this.points.tipOf((p.seriesIndex ? this.crossed : this.good)[p.dataIndex].row)
    };
  }

  steps() {
    return [
      ...this.good.map((_, dataIndex) => ({seriesIndex: 0, dataIndex})),
      ...this.crossed.map((_, dataIndex) => ({seriesIndex: 1, dataIndex}))
    ];
  }

  /** As it is seen: a row per value of the one axis, a column per value of the other. */
  tableData() {
    const {x, y, measure} = this;
    const at = new Map(this.cells().map(c => [c.y * x.choices.length + c.x, c]));
    const words = cell => (cell ? cell.value ?? this.points.status(cell.row) : null);
    return {
      columns: [
        {name: `${spaced(y.name)} \\ ${spaced(x.name)}`, unit: y.unit},
        ...x.choices.map(value => ({name: format(value, x.unit), unit: measure.unit}))
      ],
      rows: y.choices.length,
      cell: (row, column) =>
          (column ? words(at.get(row * x.choices.length + column - 1)) : y.choices[row]),
    };
  }
}
