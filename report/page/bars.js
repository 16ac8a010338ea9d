// SPDX-License-Identifier: Apache-2.0
// Bars: where the devices' time goes, and things side by side.
const PART_COLOURS = {
  compute: '--F',
  recompute: '--recompute',
  tensor: '--message',
  context: '--front',
  host: '--bad',
  warmup: '--I',
  imbalance: '--W',
  transfer_wait: '--R',
  drain: '--B',
  gradient_reduction: '--S'
};
const partColour = part => css(PART_COLOURS[part.kind] ?? '--message');
const LABEL_WIDTH = 44;  // pixels of "12.5 %"

/** Stacked shares of the run, of all devices together in one bar. */
class TimeTotal extends Figure {
  constructor(section) {
    super(section);
    const {rows, parts, makespan_s} = section;
    const devices = rows.reduce((sum, row) => sum + row.devices, 0);
    this.parts = parts.map(part => {
      const seconds =
          part.seconds.reduce((sum, s, row) => sum + s * rows[row].devices, 0) / devices;
      const share = makespan_s > 0 ? seconds / makespan_s : 0;
      return {...part, mean: seconds, share, title: `${part.name} ${format(share, 'fraction')}`};
    });
  }

  title() { return 'All devices together'; }
  height() { return 92; }
  legend() { return this.parts.map(part => ({name: part.title, colour: partColour(part)})); }

  option() {
    return {
      grid: {left: 4, right: 14, top: 4, bottom: 44},
      yAxis: {type: 'category', data: [''], show: false},
      xAxis: this.axis({
        type: 'value',
        min: 0,
        max: 1,
        name: 'share of the devices\' time, %',
        nameLocation: 'middle',
        nameGap: 24,
        axisLabel: {formatter: v => formatNumber(100 * v)}
      }),
      series: this.parts.map(
          part => ({
            type: 'bar',
            stack: 'all',
            name: part.title,
            barWidth: 38,
            itemStyle: {color: partColour(part)},
            emphasis: {disabled: true},
            label: {
              show: part.share * this.canvas.clientWidth > LABEL_WIDTH,
              color: inkOn(partColour(part)),
              fontSize: 11,
              formatter: () => format(part.share, 'fraction')
            },
            data: [part.share]
          })),
    };
  }

  tooltip() {
    return {
      trigger: 'item',
      formatter: p => tip(this.parts[p.seriesIndex].name, [
        ['share', format(this.parts[p.seriesIndex].share, 'fraction')],
        ['of a device, on average', format(this.parts[p.seriesIndex].mean, 's')]
      ])
    };
  }

  steps() { return this.parts.map((_, seriesIndex) => ({seriesIndex, dataIndex: 0})); }

  tableData() {
    const cells = [part => part.name, part => part.share, part => part.mean];
    return {
      columns: [
        {name: 'what'}, {name: 'share', unit: 'fraction'},
        {name: 'of a device, on average', unit: 's'}
      ],
      rows: this.parts.length,
      cell: (row, column) => cells[column](this.parts[row])
    };
  }
}

/** {word, short}: "stage", ["0", "1"] of "stage 0", "stage 1"; no word where they have several. */
function shortNames(names) {
  const [word] = (names[0] ?? '').split(' ');
  const same = word && names.every(name => name.startsWith(`${word} `));
  return same ? {word, short: names.map(name => name.slice(word.length + 1))} :
                {word: '', short: names};
}

/** The same of each row. */
class TimeRows extends Figure {
  constructor(section) {
    super(section);
    this.names = shortNames(section.rows.map(row => row.name));
  }

  title() { return this.names.word ? `Each ${this.names.word}` : 'Each of them'; }
  legend() {
    return this.section.parts.map(part => ({name: part.name, colour: partColour(part)}));
  }
  share(seconds) { return this.section.makespan_s > 0 ? seconds / this.section.makespan_s : 0; }

  option() {
    return {
      grid: {left: 48, right: 12, top: 28, bottom: 40},
      xAxis: this.axis({
        type: 'category',
        name: this.names.word,
        nameLocation: 'middle',
        nameGap: 24,
        data: this.names.short,
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
      series: this.section.parts.map(
          part => ({
            type: 'bar',
            stack: 'all',
            name: part.name,
            barCategoryGap: this.section.rows.length > 48 ? '5%' : '25%',
            barMaxWidth: 90,
            itemStyle: {color: partColour(part)},
            emphasis: {disabled: true},
            data: part.seconds.map(s => this.share(s))
          })),
    };
  }

  tooltip() {
    return {
      trigger: 'axis',
      axisPointer: {type: 'shadow'},
      formatter: params => {
        const row = this.section.rows[params[0].dataIndex];
        const seconds = p => format(p.value * this.section.makespan_s, 's');
        return tip(
            row.devices > 1 ? `${row.name}, of ${row.devices} devices` : row.name,
            params.map(p => [p.seriesName, `${format(p.value, 'fraction')}, ${seconds(p)}`, p.color]));
      }
    };
  }

  steps() { return this.section.rows.map((_, dataIndex) => ({seriesIndex: 0, dataIndex})); }

  tableData() {
    const {rows, parts} = this.section;
    const columns = [
      {name: this.names.word || 'row'}, {name: 'devices'},
      ...parts.flatMap(
          ({name}) => [{name, unit: 's'}, {name: `${name}, of the run`, unit: 'fraction'}])
    ];
    const cell = (row, column) => {
      if (column === 0) return this.names.short[row];
      if (column === 1) return rows[row].devices;
      const seconds = parts[(column - 2) >> 1].seconds[row];
      return column % 2 ? this.share(seconds) : seconds;
    };
    return {columns, rows: rows.length, cell};
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
