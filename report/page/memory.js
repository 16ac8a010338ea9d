// SPDX-License-Identifier: Apache-2.0
// Memory per device over time against capacity.
const MOST_LINES = 64;
const NAMED_IN_TIP = 12;

const OWNER_COLOURS = ['--F', '--I', '--B', '--W', '--S', '--recompute', '--message'];

const capacitiesOf = lines =>
    [...new Set(lines.map(line => line.capacity).filter(c => c > 0))].sort((a, b) => a - b);

/** Capacities are named in the legend: beside their lines the names would cover other lines. */
function capacityEntry(capacities) {
  if (!capacities.length) return [];
  const name = `capacity ${capacities.map(c => format(c, 'bytes')).join(', ')}`;
  return [{name, colour: css('--bad'), fixed: true}];
}

class Memory extends Figure {
  constructor(section) {
    super(section);
    // Of very many devices the fullest are drawn; the table has all.
    this.lines = [...section.lines]
                     .map((line, place) => ({...line, place}))
                     .sort((a, b) => b.peak - a.peak)
                     .slice(0, MOST_LINES)
                     .sort((a, b) => a.place - b.place)
                     .map(line => ({
                            ...line,
                            at: unpack(line.at, Uint32Array),
                            bytes: unpack(line.bytes, Uint32Array)
                          }));
  }

  title() {
    const all = this.section.lines.length;
    return all > MOST_LINES ? `Memory: the ${MOST_LINES} fullest of ${all} devices` :
                              'Memory over time';
  }
  get zooms() { return true; }
  get range() { return [0, this.section.end_s]; }
  height() { return 380; }
  name(line) { return this.lines.length > 16 ? line.name.replace('device ', '') : line.name; }
  get palette() { return palette(this.lines.length); }
  legend() {
    const colours = this.palette;
    return [
      ...this.lines.map((line, i) => ({name: this.name(line), colour: colours[i]})),
      ...capacityEntry(this.capacities)
    ];
  }
  get capacities() { return capacitiesOf(this.lines); }

  points(line) {
    const points = Array.from(
        line.at, (at, i) => [at * this.section.tick_s, line.bytes[i] * this.section.tick_bytes]);
    if (points.length) points.push([this.section.end_s, points.at(-1)[1]]);
    return points;
  }

  option() {
    const {capacities} = this;
    const most = largest([...capacities, ...this.lines.map(line => line.peak)]) * 1.08 || 1;
    const scale = axisText('memory', 'bytes', most);
    const time = axisText('time', 's', this.section.end_s);
    const colours = this.palette;
    return {
      grid: {left: 62, right: 16, top: 30, bottom: 72},
      xAxis: this.axis({
        type: 'value',
        min: 0,
        max: this.section.end_s,
        nameLocation: 'middle',
        nameGap: 26,
        ...time,
        axisLabel: {...time.axisLabel, hideOverlap: true, showMinLabel: false, showMaxLabel: false},
        splitLine: {show: false}
      }),
      yAxis: this.axis({
        type: 'value',
        min: 0,
        max: most,
        ...scale,
        axisLabel: {...scale.axisLabel, showMaxLabel: false},
        nameTextStyle: {align: 'left'}
      }),
      dataZoom: this.zoomOption(),
      series: [
        ...this.lines.map((line, i) => ({
                            type: 'line',
                            name: this.name(line),
                            step: 'end',
                            symbol: 'none',
                            sampling: 'max',
                            data: this.points(line),
                            lineStyle: {width: this.lines.length > 8 ? 1.5 : 2, color: colours[i]},
                            itemStyle: {color: colours[i]},
                            emphasis: {disabled: true}
                          })),
        {
          type: 'line',
          name: 'capacity',
          data: [],
          silent: true,
          markLine: {
            silent: true,
            symbol: 'none',
            lineStyle: {color: this.colours.bad, type: 'dashed', width: 2},
            label: {show: false},
            data: capacities.map(c => ({yAxis: c}))
          }
        },
      ],
    };
  }

  tooltip() {
    return {
      trigger: 'axis',
      axisPointer: {type: 'line', lineStyle: {color: this.colours.faint}},
      formatter: params => this.tipAt(params[0].axisValue)
    };
  }

  tipAt(time) {
    const colours = this.palette;
    const rows =
        this.lines.map((line, i) => ({line, colour: colours[i], bytes: this.held(line, time)}))
            .filter(({line}) => !this.hidden.has(this.name(line)))
            .sort((a, b) => b.bytes - a.bytes);
    const named = rows.slice(0, NAMED_IN_TIP)
                      .map(r => [r.line.name, format(r.bytes, 'bytes'), r.colour]);
    if (rows.length > named.length) named.push([`and ${rows.length - named.length} more`, '']);
    return tip(`at ${formatMoment(time)}`, named);
  }

  /** Bytes at a time: those of the last sample before it. */
  held(line, time) {
    const ticks = time / this.section.tick_s;
    let low = 0, high = line.at.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (line.at[middle] <= ticks)
        low = middle + 1;
      else
        high = middle;
    }
    return low ? line.bytes[low - 1] * this.section.tick_bytes : 0;
  }

  steps() {
    return this.lines.length ?
        Array.from(this.lines[0].at, (_, dataIndex) => ({seriesIndex: 0, dataIndex})) :
        [];
  }

  tableData() {
    const {lines, owners} = this.section;
    const cells = [
      line => line.name, line => line.peak, line => line.capacity || null,
      line => (line.capacity ? line.capacity - line.peak : null), line => line.peak_at_s,
      line => line.peak_op, ...owners.map((_, o) => line => line.owners[o])
    ];
    return {
      columns: [
        {name: 'device'}, {name: 'peak', unit: 'bytes'}, {name: 'capacity', unit: 'bytes'},
        {name: 'margin', unit: 'bytes'}, {name: 'time of the peak', unit: 's', digits: MOMENT_DIGITS}, {name: 'at op'},
        ...owners.map(name => ({name: spaced(name), unit: 'bytes'}))
      ],
      rows: lines.length,
      cell: (row, column) => cells[column](lines[row]),
    };
  }
}

/** What the peak of each device consists of, against its capacity. */
class MemoryOwners extends Figure {
  constructor(section) {
    super(section);
    this.owners = section.owners.map((name, o) => ({name: spaced(name), o}))
                      .filter(({o}) => section.lines.some(line => line.owners[o] > 0));
  }

  title() { return 'Peak by owner'; }
  get capacities() { return capacitiesOf(this.section.lines); }
  legend() {
    return [
      ...this.owners.map(({name, o}) => ({name, colour: css(OWNER_COLOURS[o])})),
      ...capacityEntry(this.capacities)
    ];
  }

  option() {
    const {lines} = this.section;
    const names = shortNames(lines.map(line => line.name));
    const most = largest(lines.flatMap(line => [line.peak, line.capacity])) * 1.05 || 1;
    const scale = axisText('memory', 'bytes', most);
    const wide = (this.canvas.clientWidth - 78) / lines.length * 0.9;
    return {
      grid: {left: 62, right: 16, top: 30, bottom: 40},
      xAxis: this.axis({
        type: 'category',
        name: names.word,
        nameLocation: 'middle',
        nameGap: 24,
        data: names.short,
        splitLine: {show: false}
      }),
      yAxis: this.axis({
        type: 'value',
        min: 0,
        max: most,
        ...scale,
        axisLabel: {...scale.axisLabel, showMaxLabel: false},
        nameTextStyle: {align: 'left'}
      }),
      series: [
        ...this.owners.map(({name, o}) => ({
                             type: 'bar',
                             stack: 'all',
                             name,
                             barCategoryGap: lines.length > 48 ? '5%' : '25%',
                             barMaxWidth: 90,
                             itemStyle: {color: css(OWNER_COLOURS[o])},
                             emphasis: {disabled: true},
                             data: lines.map(line => line.owners[o])
                           })),
        {
          type: 'scatter',
          name: 'capacity',
          symbol: 'rect',
          symbolSize: [Math.max(2, Math.min(wide, 110)), 3],
          silent: true,
          itemStyle: {color: this.colours.bad, opacity: 1},
          data: lines.map(line => line.capacity || null)
        },
      ],
    };
  }

  tooltip() {
    return {
      trigger: 'axis',
      axisPointer: {type: 'shadow'},
      formatter: params => this.tipOf(this.section.lines[params[0].dataIndex])
    };
  }

  tipOf(line) {
    const rows = this.owners.map(
        ({name, o}) => [name, format(line.owners[o], 'bytes'), css(OWNER_COLOURS[o])]);
    rows.push(['together', format(line.peak, 'bytes')]);
    if (line.capacity) rows.push(['capacity', format(line.capacity, 'bytes'), css('--bad')]);
    return tip(line.name, rows);
  }

  steps() { return this.section.lines.map((_, dataIndex) => ({seriesIndex: 0, dataIndex})); }

  tableData() {
    const {lines} = this.section;
    const cells = [
      line => line.name, ...this.owners.map(({o}) => line => line.owners[o]), line => line.peak,
      line => line.capacity || null
    ];
    return {
      columns: ['device', ...this.owners.map(({name}) => name), 'peak', 'capacity'].map(
          (name, c) => ({name, unit: c ? 'bytes' : ''})),
      rows: lines.length,
      cell: (row, column) => cells[column](lines[row]),
      bad: row => lines[row].capacity > 0 && lines[row].peak > lines[row].capacity,
    };
  }
}
