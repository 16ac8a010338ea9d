// Bars: what each device did with its time, and things side by side.
const CAUSE_COLOURS = {
  busy: '--F',
  warmup: '--I',
  imbalance: '--W',
  transfer_wait: '--R',
  drain: '--B',
  gradient_reduction: '--S'
};

class Bubble extends Figure {
  constructor(section) {
    super(section);
    this.parts = [
      ['busy', section.busy, 'busy'],
      ...section.causes.map((cause, c) => [cause, section.idle.map(row => row[c]), section.words[c]])
    ].filter(([cause, seconds]) => cause === 'busy' || seconds.some(s => s > 0));
  }

  title() { return 'Busy and idle time'; }
  legend() {
    return this.parts.map(([cause, _, words]) => ({name: words, colour: css(CAUSE_COLOURS[cause])}));
  }
  share(seconds) { return this.section.makespan_s > 0 ? seconds / this.section.makespan_s : 0; }

  option() {
    return {
      grid: {left: 48, right: 12, top: 28, bottom: 40},
      xAxis: this.axis({
        type: 'category',
        name: 'device',
        nameLocation: 'middle',
        nameGap: 24,
        data: this.section.busy.map((_, d) => String(d)),
        splitLine: {show: false}
      }),
      yAxis: this.axis({
        type: 'value',
        min: 0,
        max: 1,
        name: 'share of the run, %',
        nameTextStyle: {align: 'left'},
        axisLabel: {formatter: v => formatNumber(100 * v)}
      }),
      series: this.parts.map(([cause, seconds, words]) => ({
                               type: 'bar',
                               stack: 'all',
                               name: words,
                               barCategoryGap: this.section.busy.length > 48 ? '5%' : '25%',
                               barMaxWidth: 90,
                               itemStyle: {color: css(CAUSE_COLOURS[cause])},
                               emphasis: {disabled: true},
                               data: seconds.map(s => this.share(s))
                             })),
    };
  }

  tooltip() {
    return {
      trigger: 'axis',
      axisPointer: {type: 'shadow'},
      formatter: params =>
          tip(`device ${params[0].axisValue}`,
              params.map(
                  p =>
                      [p.seriesName,
                       `${format(p.value, 'fraction')}, ${
                           format(p.value * this.section.makespan_s, 's')}`,
                       p.color]))
    };
  }

  steps() { return this.section.busy.map((_, dataIndex) => ({seriesIndex: 0, dataIndex})); }

  tableData() {
    const columns = [
      {name: 'device'}, ...this.parts.flatMap(([, , words]) => [{name: words, unit: 's'}, {
                                                name: `${words} of the run`,
                                                unit: 'fraction'
                                              }])
    ];
    const cell = (row, column) => {
      if (column === 0) return row;
      const seconds = this.parts[(column - 1) >> 1][1][row];
      return column % 2 ? seconds : this.share(seconds);
    };
    return {columns, rows: this.section.busy.length, cell};
  }
}

/** One quantity of several things. */
class Comparison extends Figure {
  constructor(section, panel) {
    super(section);
    this.panel = panel;
  }

  get palette() { return palette(this.panel.bars.length); }

  title() { return this.panel.quantity; }
  legend() {
    if (this.panel.bars.length < 2)
      return this.section.bad.includes(true) ?
          [{name: 'does not fit', colour: css('--bad'), fixed: true}] :
          [];
    return this.panel.bars.map((bars, i) => ({name: bars.name, colour: this.palette[i]}));
  }
  height() { return this.section.names.length * (10 + 16 * this.panel.bars.length) + 70; }

  option() {
    const {names} = this.section;
    const {quantity, unit, bars} = this.panel;
    const most = largest(bars.flatMap(b => b.values));
    const room =
        Math.min(0.45 * this.canvas.clientWidth, 20 + 7 * Math.max(...names.map(n => n.length)));
    const scale = axisText(quantity, unit, most);
    return {
      grid: {left: room, right: 70, top: 8, bottom: 48},
      xAxis: this.axis({
        type: 'value',
        min: 0,
        nameLocation: 'middle',
        nameGap: 28,
        ...scale,
        axisLabel: {...scale.axisLabel, hideOverlap: true},
        splitNumber: 4
      }),
      yAxis: this.axis({
        type: 'category',
        inverse: true,
        data: names,
        axisTick: {show: false},
        splitLine: {show: false},
        axisLabel: {width: room - 12, overflow: 'truncate'}
      }),
      series: bars.map((b, i) => ({
                         type: 'bar',
                         name: b.name || quantity,
                         data: b.values.map((value, at) => this.barOf(value, at)),
                         barMaxWidth: 16,
                         itemStyle: {color: this.palette[i]},
                         emphasis: {disabled: true},
                         label: {
                           show: true,
                           position: 'right',
                           color: this.colours.ink,
                           fontSize: 11,
                           formatter: p => format(b.values[p.dataIndex], PREFIXES[unit] ? unit : '')
                         }
                       })),
    };
  }

  bad(at) { return this.section.bad[at] === true; }
  barOf(value, at) { return this.bad(at) ? {value, itemStyle: {color: this.colours.bad}} : value; }

  tooltip() {
    return {
      trigger: 'axis',
      axisPointer: {type: 'shadow'},
      formatter: params =>
          tip(params[0].axisValue,
              params.map(p => [p.seriesName, format(p.value, this.panel.unit), p.color]))
    };
  }

  steps() { return this.section.names.map((_, dataIndex) => ({seriesIndex: 0, dataIndex})); }

  tableData() {
    const {quantity, unit, bars} = this.panel;
    return {
      columns: [{name: 'name'}, ...bars.map(b => ({name: b.name || quantity, unit}))],
      rows: this.section.names.length,
      bad: row => this.bad(row),
      cell: (row, column) => (column ? bars[column - 1].values[row] : this.section.names[row])
    };
  }
}
