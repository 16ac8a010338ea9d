// SPDX-License-Identifier: Apache-2.0
// A table of any length: sorted by its headings, a page of rows at a time, columns to choose.
const ROWS_PER_PAGE = 25;
// Where a row is a list of its cells (page.css), more would be a page of many screens.
const ROWS_PER_NARROW_PAGE = 10;
const NARROW_COLUMNS = 8;
const narrow = matchMedia('(max-width: 600px)');
const ROWS_IN_PRINT = 200;
const CHOOSABLE_FROM = 7;  // columns
const LONG_TEXT = 40;
const LIST_FROM = 6;  // columns: fewer stand side by side on the narrowest screen

/** A column as report/table_section.cpp writes it: {numbers, value(row)}. */
function reader({values}) {
  if ('all' in values) return {numbers: typeof values.all !== 'string', value: () => values.all};
  const numbers = Array.isArray(values);
  return {numbers, value: numbers ? row => values[row] : row => values.words[values.at[row]]};
}

const heading = ({name, unit}) => label(name, PREFIXES[unit] ? '' : unit);

class Table {
  static all = [];

  /**
   * `data`: {columns: [{name, unit}], rows: count, cell(row, column), order, bad}; a cell is number,
   * text, null; `order`: the rows as they stand first; `bad(row)`: it does not fit or failed.
   */
  constructor(data) {
    this.data = data;
    this.order = Uint32Array.from(data.order ?? Array(data.rows).keys());
    this.page = 0;
    this.sorted = null;  // {column, down}
    this.node = element('div', {class: data.columns.length < LIST_FROM ? 'table' : 'table list'});
    Table.all.push(this);
    this.fold();
    narrow.addEventListener('change', () => this.fold());
  }

  /**
   * As much as there is room for; the chooser and the pager have the rest. Where that is little, what was found out (it has
   * a unit) comes before what was asked for; what names the row is first.
   */
  fold() {
    const few = narrow.matches && !this.printed;
    const {columns} = this.data;
    const rank = i => i === 0 ? 0 : columns[i].unit ? 1 : 2;
    this.places = columns.map((_, i) => i);
    if (few) this.places.sort((a, b) => rank(a) - rank(b) || a - b);
    if (!this.columnsChosen) {
      const most = few ? NARROW_COLUMNS : Infinity;
      this.hidden = new Set(this.places.filter((i, place) => columns[i].hidden || place >= most));
    }
    this.perPage = this.printed ? ROWS_IN_PRINT :
        narrow.matches          ? ROWS_PER_NARROW_PAGE :
                                  ROWS_PER_PAGE;
    this.page = 0;
    this.draw();
  }

  sortBy(column) {
    const down = this.sorted?.column === column && !this.sorted.down;
    this.sorted = {column, down};
    const {cell} = this.data;
    const compare = (a, b) => {
      const [x, y] = [cell(a, column), cell(b, column)];
      if (x === y) return a - b;
      if (x === null || x === undefined) return 1;  // what is not known stands last
      if (y === null || y === undefined) return -1;
      const before = typeof x === 'number' && typeof y === 'number' ?
          x - y :
          String(x).localeCompare(String(y), 'en', {numeric: true});
      return down ? -before : before;
    };
    this.order.sort(compare);
    this.page = 0;
    this.draw(column);
  }

  /** `focus`: the column whose heading keeps the focus. */
  draw(focus = null) {
    const shown = this.places.filter(i => !this.hidden.has(i));
    const table = element('table', {}, this.head(shown), this.body(shown));
    this.node.replaceChildren(
        ...this.chooser(), element('div', {class: 'scroll', tabindex: 0}, table), ...this.pager());
    if (focus !== null) this.node.querySelector(`[data-column="${focus}"]`)?.focus();
  }

  /** Paper holds more rows at once, and cannot turn pages. */
  print(on) {
    this.printed = on;
    this.fold();
  }

  head(shown) {
    const row = element('tr');
    for (const i of shown) {
      const mine = this.sorted?.column === i;
      const arrow = mine ? (this.sorted.down ? ' ▼' : ' ▲') : '';
      const button = element(
          'button', {type: 'button', 'data-column': i, onclick: () => this.sortBy(i)},
          heading(this.data.columns[i]) + arrow);
      const sort = mine ? (this.sorted.down ? 'descending' : 'ascending') : null;
      const text = this.data.rows > 0 && typeof this.data.cell(0, i) === 'string' ? 'text' : null;
      row.append(element('th', {scope: 'col', 'aria-sort': sort, class: text}, button));
    }
    return element('thead', {}, row);
  }

  body(shown) {
    const body = element('tbody');
    const first = this.page * this.perPage;
    for (const row of this.order.subarray(first, first + this.perPage)) {
      const line = element('tr', this.data.bad?.(row) ? {class: 'bad'} : {});
      for (const i of shown) {
        const value = this.data.cell(row, i);
        const text = typeof value === 'string';
        // The unit stands in the heading, unless it has prefixes.
        const {unit, digits = unit && unit !== 'fraction' ? DIGITS : undefined} = this.data.columns[i];
        line.append(element(
            'td', {
              class: !text ? null : value.length > LONG_TEXT ? 'text long' : 'text',
              'data-name': heading(this.data.columns[i])
            },
            format(value, PREFIXES[unit] ? unit : '', digits)));
      }
      body.append(line);
    }
    return body;
  }

  pager() {
    const {rows} = this.data;
    if (rows <= this.perPage) return [];
    const pages = Math.ceil(rows / this.perPage);
    const go = page => {
      this.page = Math.min(Math.max(page, 0), pages - 1);
      this.draw();
      this.node.querySelector(`.pager [data-go="${page < 0 ? 0 : page}"]`)?.focus();
    };
    const button = (text, name, page, off) => element(
        'button', {type: 'button', 'aria-label': name, disabled: off, onclick: () => go(page)},
        text);
    const first = this.page * this.perPage;
    const where = `rows ${formatNumber(first + 1)} to ${
        formatNumber(Math.min(first + this.perPage, rows))} of ${formatNumber(rows)}`;
    return [element(
        'p', {class: 'pager'}, button('«', 'first page', 0, this.page === 0),
        button('‹', 'previous page', this.page - 1, this.page === 0),
        element('span', {'aria-live': 'polite'}, where),
        button('›', 'next page', this.page + 1, this.page === pages - 1),
        button('»', 'last page', pages - 1, this.page === pages - 1))];
  }

  chooser() {
    const {columns} = this.data;
    if (columns.length < CHOOSABLE_FROM) return [];
    this.open ??= false;
    const shown = columns.length - this.hidden.size;
    const boxes = columns.map((column, i) => {
      const box = element('input', {
        type: 'checkbox',
        checked: !this.hidden.has(i),
        onchange: () => {
          this.columnsChosen = true;
          this.hidden[box.checked ? 'delete' : 'add'](i);
          this.draw();
        }
      });
      return element('label', {}, box, column.name);
    });
    return [element(
        'details', {
          class: 'chooser',
          open: this.open,
          ontoggle: event => {
            this.open = event.target.open;
          }
        },
        element('summary', {}, this.hidden.size > 0 ? `Columns (${shown} of ${columns.length})` : 'Columns'),
        ...boxes)];
  }
}
