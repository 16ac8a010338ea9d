// SPDX-License-Identifier: Apache-2.0
// Losses of several scenarios against updates, samples or simulated seconds, with bands over seeds.
const LEARNING_AXES = [['updates', ''], ['samples', ''], ['simulated time', 's']];
const LEARNING_MEAN = 3, LEARNING_LEAST = 4, LEARNING_MOST = 5;

class Learning extends Figure {
  constructor(section, axis) {
    super(section);
    this.x = axis;
    [this.quantity, this.unit] = LEARNING_AXES[axis];
  }

  title() { return `${this.section.quantity} against ${this.quantity}`; }
  height() { return 380; }
  get palette() { return palette(this.section.lines.length); }
  legend() {
    const colours = this.palette;
    return this.section.lines.map((line, i) => ({name: line.name, colour: colours[i]}));
  }
  get points() { return this.section.lines.flatMap(line => line.points); }

  /** A line, and its band as two more that are stacked: an invisible one and what is above it. */
  series(line, i) {
    const colour = this.palette[i];
    const band = (y, area) => ({
      type: 'line',
      name: line.name,
      stack: `band ${i}`,
      stackStrategy: 'all',
      symbol: 'none',
      silent: true,
      lineStyle: {opacity: 0},
      areaStyle: area ? {color: colour, opacity: 0.18} : undefined,
      data: line.points.map(p => [p[this.x], y(p)])
    });
    return [
      {
        type: 'line',
        name: line.name,
        symbol: line.points.length === 1 ? 'circle' : 'none',  // one point makes no line
        symbolSize: 8,
        data: line.points.map(p => [p[this.x], p[LEARNING_MEAN]]),
        lineStyle: {width: 2, color: colour},
        itemStyle: {color: colour},
        emphasis: {disabled: true}
      },
      band(p => p[LEARNING_LEAST], false), band(p => p[LEARNING_MOST] - p[LEARNING_LEAST], true)
    ];
  }

  option() {
    const most = largest(this.points.map(p => p[this.x]));
    const top = largest(this.points.map(p => p[LEARNING_MOST]));
    const bottom = Math.min(...this.points.map(p => p[LEARNING_LEAST]));
    const margin = (top - bottom || Math.abs(top) || 1) * 0.05;
    const along = axisText(this.quantity, this.unit, most);
    const scale = axisText(this.section.quantity, '', top);
    return {
      grid: {left: 62, right: 16, top: 30, bottom: 44},
      xAxis: this.axis({
        type: 'value',
        min: 0,
        max: most,
        nameLocation: 'middle',
        nameGap: 26,
        ...along,
        axisLabel: {...along.axisLabel, hideOverlap: true, showMaxLabel: false},
        splitLine: {show: false}
      }),
      yAxis: this.axis({
        type: 'value',
        min: Math.max(0, bottom - margin),
        max: top > bottom ? top : top + margin,
        ...scale,
        axisLabel: {...scale.axisLabel, showMinLabel: false, showMaxLabel: false},
        nameTextStyle: {align: 'left'}
      }),
      series: this.section.lines.flatMap((line, i) => this.series(line, i))
    };
  }

  tooltip() {
    return {
      trigger: 'axis',
      axisPointer: {type: 'line', lineStyle: {color: this.colours.faint}},
      formatter: params => this.tipAt(params[0].axisValue)
    };
  }

  tipAt(x) {
    const colours = this.palette;
    const rows = this.section.lines.map((line, i) => {
      const p = line.points.filter(q => q[this.x] <= x * (1 + 1e-12)).at(-1);
      return [line.name, p ? format(p[LEARNING_MEAN]) : '', colours[i]];
    });
    return tip(`after ${format(x, this.unit)}${this.unit ? '' : ` ${this.quantity}`}`, rows);
  }

  steps() {
    return this.section.lines[0].points.map((_, dataIndex) => ({seriesIndex: 0, dataIndex}));
  }

  tableData() {
    const rows = this.section.lines.flatMap(line => line.points.map(p => [line.name, ...p]));
    return {
      columns: [
        {name: 'scenario'}, {name: 'updates'}, {name: 'samples'},
        {name: 'simulated time', unit: 's'}, {name: 'mean'}, {name: 'least'}, {name: 'most'}
      ],
      rows: rows.length,
      cell: (row, column) => rows[row][column]
    };
  }
}
