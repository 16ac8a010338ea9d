// A sweep's points: columns by name, which of them are axes and measures.
class Points {
  constructor(section) {
    this.columns = section.columns.map(column => {
      const {values} = column;
      const numbers = Array.isArray(values);
      return {
        ...column,
        numbers,
        value: numbers ? row => values[row] : row => values.words[values.at[row]]
      };
    });
    const of = name => this.columns.find(c => c.name === name && c.role === 'other');
    this.status = of('status').value;
    this.reason = of('reason').value;
    const {values} = this.columns.at(-1);
    this.size = Array.isArray(values) ? values.length : values.at.length;
    this.measures = this.columns.filter(c => c.role === 'measure' && c.numbers);
    this.axes = this.columns.filter(c => c.role === 'axis').map(c => this.withChoices(c));
  }

  /** An axis with its values in order, and the place of each row's value among them. */
  withChoices(axis) {
    const choices = [...new Set(Array.from({length: this.size}, (_, row) => axis.value(row)))];
    if (axis.numbers) choices.sort((a, b) => a - b);
    const place = new Map(choices.map((value, i) => [value, i]));
    return {...axis, choices, place: row => place.get(axis.value(row))};
  }

  ok(row) { return this.status(row) === 'ok'; }
  named(name) { return this.columns.find(c => c.name === name); }

  /** "stages 8, schedule 1f1b". */
  describe(row) {
    return this.axes.map(axis => `${axis.name} ${format(axis.value(row), axis.unit)}`).join(', ');
  }

  tipOf(row) {
    const rows = this.measures.map(m => [spaced(m.name), format(m.value(row) ?? null, m.unit)]);
    if (!this.ok(row)) rows.unshift([this.status(row), this.reason(row)]);
    return tip(this.describe(row), rows);
  }
}

const isBetter = (better, a, b) => (better === 'higher' ? a > b : a < b);
const columnChoices = columns => columns.map(c => [c.name, spaced(c.name)]);

/** Every point as a row. */
class PointsTable extends Figure {
  constructor(section, points) {
    super(section);
    this.points = points;
    this.mode = 'table';
    this.tableOnly = true;
  }
  title() { return 'Points'; }
  build() {
    const node = super.build();
    this.bar.replaceChildren(element('h3', {}, this.title()));
    this.canvas.hidden = this.legendNode.hidden = true;
    this.tableNode.hidden = false;
    this.ensureTable();
    return node;
  }
  draw() {}
  tableData() {
    const {columns} = this.points;
    return {
      columns: columns.map(c => ({name: spaced(c.name), unit: c.unit})),
      rows: this.points.size,
      cell: (row, column) => columns[column].value(row)
    };
  }
}
