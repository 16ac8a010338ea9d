// SPDX-License-Identifier: Apache-2.0
// Predicted over measured, a point per row, both axes logarithmic: what is on the line agrees.
const AGREEMENT = [[1, 'solid'], [1.1, 'dashed'], [1 / 1.1, 'dashed']];
const SCATTER_MARGIN = 1.25;  // beyond the outermost points
const AXIS_LABELS = 8;
const ROUND = [[1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]];

class Scatter extends Figure {
  constructor(section, panel) {
    super(section);
    this.panel = panel;
    this.rows = panel.groups.flatMap(
        (group, g) => group.points.map(
            ([name, measured, predicted], at) =>
                ({name, measured, predicted, g, at, error: predicted / measured - 1})));
    // The furthest off first: so the keys visit them.
    this.rows.sort((a, b) => Math.abs(b.error) - Math.abs(a.error));
  }

  title() { return this.panel.quantity; }
  height() { return Math.min(Math.max(this.canvas.clientWidth, 300), 480); }
  legend() {
    const colours = palette(this.panel.groups.length);
    return this.panel.groups.map(({name}, i) => ({name, colour: colours[i]}));
  }

  /** What both axes show, in the unit's prefix: so lines are at its powers of ten. */
  frame() {
    const values = this.rows.flatMap(row => [row.measured, row.predicted]);
    const low = values.reduce((a, b) => Math.min(a, b)) / SCATTER_MARGIN;
    const high = largest(values) * SCATTER_MARGIN;
    const {factor, name} = scaleOf(this.panel.unit, Math.sqrt(low * high));
    return {ends: [low / factor, high / factor], factor, unitName: name};
  }

  /** Labels at round multiples of the powers of ten, as many as there is room for. */
  labels([low, high]) {
    const from = Math.floor(Math.log10(low));
    const powers = Array.from({length: Math.ceil(Math.log10(high)) - from + 1}, (_, i) => from + i);
    const choices = ROUND.map(
        steps => powers.flatMap(power => steps.map(step => Number(`${step}e${power}`)))
                     .filter(value => value >= low && value <= high));
    return choices.find(values => values.length <= AXIS_LABELS) ?? choices.at(-1);
  }

  option() {
    const {ends, factor, unitName} = this.frame();
    const {groups} = this.panel;
    const customValues = this.labels(ends);
    const axis = (what, more) => this.axis({
      type: 'log',
      min: ends[0],
      max: ends[1],
      name: label(what, unitName),
      axisTick: {customValues},
      axisLabel: {customValues, hideOverlap: true, formatter: formatNumber},
      ...more
    });
    const colours = palette(groups.length);
    return {
      grid: {left: 64, right: 16, top: 30, bottom: 46},
      xAxis: axis('measured', {nameLocation: 'middle', nameGap: 28}),
      yAxis: axis('predicted', {nameTextStyle: {align: 'left'}}),
      series: [
        ...groups.map(({name, points}, g) => ({
                        type: 'scatter',
                        name,
                        data: points.map(([, measured, predicted]) => [measured / factor, predicted / factor]),
                        symbolSize: this.rows.length > 500 ? 4 : 7,
                        itemStyle: {color: colours[g], opacity: 0.65},
                        progressive: 0
                      })),
        ...AGREEMENT.map(([ratio, type]) => ({
                           type: 'line',
                           data: ends.map(value => [value, value * ratio]),
                           symbol: 'none',
                           silent: true,
                           z: 1,
                           lineStyle: {color: this.colours.faint, width: 1, type}
                         }))
      ]
    };
  }

  tooltip() {
    return {
      trigger: 'item',
      formatter: p => {
        const [name, measured, predicted] = this.panel.groups[p.seriesIndex].points[p.dataIndex];
        const {unit} = this.panel;
        return tip(name, [
          [p.seriesName, format(predicted / measured - 1, 'fraction'), p.color],
          ['predicted', format(predicted, unit)], ['measured', format(measured, unit)]
        ]);
      }
    };
  }

  steps() { return this.rows.map(({g, at}) => ({seriesIndex: g, dataIndex: at})); }

  tableData() {
    const {unit, groups} = this.panel;
    const cells = [row => row.name, row => groups[row.g].name, row => row.measured,
                   row => row.predicted, row => row.error];
    return {
      columns: [{name: 'row'}, {name: 'class'}, {name: 'measured', unit},
                {name: 'predicted', unit}, {name: 'error', unit: 'fraction'}],
      rows: this.rows.length,
      cell: (row, column) => cells[column](this.rows[row])
    };
  }
}
