// SPDX-License-Identifier: Apache-2.0
// A sweep's points: columns by name, which of them are axes and measures.
class Points {
  constructor(section) {
    this.size = section.rows;
    this.columns = section.columns.map(column => this.withCommon({...column, ...reader(column)}));
    const of = name => this.columns.find(c => c.name === name && c.role === 'other');
    this.status = of('status').value;
    this.reason = of('reason').value;
    const measures = this.columns.filter(c => c.role === 'measure' && c.numbers);
    this.measures = measures.filter(c => c.varies);
    if (this.measures.length < 2) this.measures = measures;
    this.axes = this.columns.filter(c => c.role === 'axis').map(c => this.withChoices(c));
  }

  /** `common`: the only value that there is; null: there are several, or none. */
  withCommon(column) {
    const known = new Set();
    for (let row = 0; row < this.size && known.size < 2; ++row) {
      const value = column.value(row);
      if (value !== null && value !== '') known.add(value);
    }
    return {...column, varies: known.size > 1, common: known.size === 1 ? [...known][0] : null};
  }

  /** An axis with its values in order, and the place of each row's value among them. */
  withChoices(axis) {
    const choices = [...new Set(Array.from({length: this.size}, (_, row) => axis.value(row)))];
    if (axis.numbers) choices.sort((a, b) => a - b);
    const place = new Map(choices.map((value, i) => [value, i]));
    return {...axis, choices, place: row => place.get(axis.value(row))};
  }

  /** Has `axis` one value for each of `other`? */
  follows(axis, other) {
    this.known ??= new Map();
    const key = `${axis.name}\n${other.name}`;
    if (!this.known.has(key)) this.known.set(key, this.isFunction(axis, other));
    return this.known.get(key);
  }

  isFunction(axis, other) {
    const place = new Map();
    for (let row = 0; row < this.size; ++row) {
      const [at, value] = [other.place(row), axis.place(row)];
      if ((place.get(at) ?? value) !== value) return false;
      place.set(at, value);
    }
    return true;
  }

  ok(row) { return ['ok', 'unknown'].includes(this.status(row)); }
  named(name) { return this.columns.find(c => c.name === name); }

  /** "stages 8, schedule 1f1b". */
  describe(row) {
    return this.axes.map(axis => `${axis.name} ${format(axis.value(row), axis.unit)}`).join(', ');
  }

  tipOf(row) {
    const rows = this.measures.map(m => [spaced(m.name), format(m.value(row) ?? null, m.unit)]);
    if (this.status(row) !== 'ok') rows.unshift([this.status(row), this.reason(row)]);
    return tip(this.describe(row), rows);
  }
}

const isBetter = (better, a, b) => (better === 'higher' ? a > b : a < b);
const columnChoices = columns => columns.map(c => [c.name, spaced(c.name)]);

/** Every point as a row, the best first; what is the same for all is said once, above. */
class PointsTable extends Figure {
  constructor(section, points) {
    super(section);
    this.points = points;
    this.mode = 'table';
    this.tableOnly = true;
    this.best = points.named(section.heat_measure) ?? points.measures[0];
  }
  title() { return 'Points, the best first'; }
  build() {
    const node = super.build();
    this.bar.replaceChildren(element('h3', {}, this.title()));
    const constants = this.constants();
    if (constants) this.bar.after(element('p', {class: 'note'}, constants));
    this.canvas.hidden = this.legendNode.hidden = true;
    this.tableNode.hidden = false;
    this.ensureTable();
    return node;
  }
  draw() {}

  constants() {
    const same = this.points.columns.filter(
        c => c.common !== null && !['status', 'reason'].includes(c.name));
    const words = same.map(c => `${spaced(c.name)} ${format(c.common, c.unit)}`);
    return words.length ? `The same wherever known: ${words.join('; ')}.` : '';
  }

  /** What was varied, what became of it, what is shown above; then the rest. */
  columns() {
    const {section, points, best} = this;
    const main = [best?.name, section.heat_measure, section.pareto_x, section.pareto_y];
    const rank = c => c.role === 'axis' ? 0 :
        c.name === 'status'             ? 1 :
        main.includes(c.name)           ? 2 :
        c.name === 'reason'             ? 3 :
        c.role === 'measure'            ? 4 :
                                          5;
    return points.columns.filter(c => c.varies || c.role === 'axis' || c.name === 'status')
        .sort((a, b) => rank(a) - rank(b));
  }

  order() {
    const {points, best} = this;
    const rows = [...Array(points.size).keys()];
    if (!best) return rows;
    const usable = row => points.ok(row) && best.value(row) !== null;
    const sign = best.better === 'higher' ? -1 : 1;
    return rows.sort(
        (a, b) => usable(b) - usable(a) ||
            (usable(a) ? sign * (best.value(a) - best.value(b)) : 0) || a - b);
  }

  tableData() {
    const columns = this.columns();
    return {
      columns: columns.map(c => ({name: spaced(c.name), unit: c.unit})),
      rows: this.points.size,
      order: this.order(),
      bad: row => !this.points.ok(row),
      cell: (row, column) => columns[column].value(row)
    };
  }
}
