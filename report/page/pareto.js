// SPDX-License-Identifier: Apache-2.0
// Two measures of every point of a sweep, and the front of those that no other point beats in both.
const MOST_GROUPS = OKABE_ITO.length;
const FRONT = 'Pareto front';

/** Of an axis: from 0, unless the points would lie on each other. */
function extent(values, unit) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  if (!(least > 0.5 * most) || least === most) return {min: 0};
  const {factor} = scaleOf(unit, most);
  const step = roundStep((most - least) / factor) * factor;
  return {min: Math.floor(least / step) * step, interval: step};
}

class Pareto extends Figure {
  constructor(section, points) {
    super(section);
    this.points = points;
    this.x = points.named(section.pareto_x) ?? points.measures[0];
    this.y = points.named(section.pareto_y) ?? points.measures[1] ?? points.measures[0];
    this.groups = points.axes.filter(a => a.choices.length > 1 && a.choices.length <= MOST_GROUPS);
    this.group = this.groups.find(a => !a.numbers) ?? null;
  }

  title() { return `${spaced(this.y.name)} against ${spaced(this.x.name)}`; }
  height() { return Math.min(Math.max(0.3 * this.canvas.clientWidth, 440), 900); }

  controls() {
    const choose = which => name => {
      this[which] = this.points.named(name);
      this.changed();
    };
    const {measures} = this.points;
    const colours = [['', 'nothing'], ...columnChoices(this.groups)];
    return [
      selector('Across', columnChoices(measures), this.x.name, choose('x')),
      selector('up', columnChoices(measures), this.y.name, choose('y')),
      ...(this.groups.length ? [selector(
                                   'coloured by', colours, this.group?.name ?? '',
                                   name => {
                                     this.group = this.groups.find(a => a.name === name) ?? null;
                                     this.hidden.clear();
                                     this.changed();
                                   })] :
                               [])
    ];
  }

  groupNames() {
    if (!this.group) return ['points'];
    return this.group.choices.map(
        value => (this.group.numbers ? `${spaced(this.group.name)} ${value}` : format(value)));
  }

  legend() {
    const names = this.groupNames();
    const colours = palette(names.length);
    return [
      ...names.map((name, i) => ({name, colour: colours[i]})), {name: FRONT, colour: css('--front')}
    ];
  }

  /** Rows that can be drawn: feasible, with both numbers, in a group that is shown. */
  drawable() {
    const rows = [];
    const names = this.groupNames();
    for (let row = 0; row < this.points.size; ++row) {
      if (!this.points.ok(row) || this.x.value(row) === null || this.y.value(row) === null)
        continue;
      if (!this.hidden.has(names[this.group ? this.group.place(row) : 0])) rows.push(row);
    }
    return rows;
  }

  /** Rows that no other beats, from the best x on. */
  front(rows) {
    const {x, y} = this;
    const better = (m, a, b) => isBetter(m.better, m.value(a), m.value(b));
    const order = (m, a, b) => (better(m, a, b) ? -1 : better(m, b, a) ? 1 : 0);
    const sorted = [...rows].sort((a, b) => order(x, a, b) || order(y, a, b));
    const front = [];
    for (const row of sorted)
      if (!front.length || better(y, row, front.at(-1))) front.push(row);
    return front;
  }

  option() {
    const rows = this.drawable();
    const {x, y, group} = this;
    this.rows =
        this.groupNames().map((_, g) => rows.filter(row => !group || group.place(row) === g));
    this.onFront = this.front(rows);
    const xAxis = axisText(spaced(x.name), x.unit, largest(rows.map(x.value)));
    const yAxis = axisText(spaced(y.name), y.unit, largest(rows.map(y.value)));
    const at = row => [x.value(row), y.value(row)];
    const colours = palette(this.rows.length);
    const front = css('--front');
    return {
      grid: {left: 64, right: 20, top: 30, bottom: 46},
      xAxis: this.axis({
        type: 'value',
        nameLocation: 'middle',
        nameGap: 28,
        ...xAxis,
        ...extent(rows.map(x.value), x.unit),
        axisLabel: {...xAxis.axisLabel, hideOverlap: true}
      }),
      yAxis: this.axis({
        type: 'value',
        ...yAxis,
        ...extent(rows.map(y.value), y.unit),
        nameTextStyle: {align: 'left'}
      }),
      series: [
        ...this.rows.map((mine, g) => ({
                           type: 'scatter',
                           name: this.groupNames()[g],
                           data: mine.map(at),
                           symbolSize: rows.length > 2000 ? 4 : 7,
                           itemStyle: {color: colours[g], opacity: 0.65},
                           progressive: 0
                         })),
        {
          type: 'line',
          name: FRONT,
          data: this.onFront.map(at),
          step: 'end',
          symbol: 'circle',
          symbolSize: 8,
          z: 4,
          lineStyle: {color: front, width: 1.5},
          itemStyle: {color: 'transparent', borderColor: front, borderWidth: 2},
          emphasis: {disabled: true}
        },
      ],
    };
  }

  rowOf(p) { return (this.rows[p.seriesIndex] ?? this.onFront)[p.dataIndex]; }
  tooltip() { return {trigger: 'item', formatter: p => this.points.tipOf(this.rowOf(p))}; }
  steps() {
    return this.onFront.map((_, dataIndex) => ({seriesIndex: this.rows.length, dataIndex}));
  }

  /** The points of the front. */
  tableData() {
    const rows = this.front(this.drawable());
    const columns = [...this.points.axes, this.x, this.y];
    return {
      columns: columns.map(c => ({name: spaced(c.name), unit: c.unit})),
      rows: rows.length,
      cell: (row, column) => columns[column].value(rows[row])
    };
  }
}
