// SPDX-License-Identifier: Apache-2.0
// The page: a section per entry of the data, its figures, light and dark, print.
function tableOf(section) {
  const columns = section.columns.map(c => ({...c, ...reader(c)}));
  return new Table({columns, rows: section.rows, cell: (row, column) => columns[column].value(row)})
      .node;
}

function sweepFigures(section) {
  const points = new Points(section);
  const figures = [];
  if (section.heat_map && points.axes.length > 1 && points.measures.length)
    figures.push(new HeatMap(section, points));
  if (points.measures.length > 1) figures.push(new Pareto(section, points));
  return [...figures, new PointsTable(section, points)];
}

const FIGURES = {
  timeline: section => [new Timeline(section)],
  memory: section => [new Memory(section), new MemoryOwners(section)],
  owners: section => [new MemoryOwners(section)],
  time: section => [new TimeTotal(section), new TimeRows(section)],
  comparison: section => section.panels.map(panel => new Comparison(section, panel)),
  learning: section => LEARNING_AXES.map((_, axis) => new Learning(section, axis)),
  scatter: section => section.panels.map(panel => new Scatter(section, panel)),
  sweep: sweepFigures,
};

function buildSection(section, index) {
  const node = element('section', {id: `section-${index}`, class: section.kind});
  node.append(element(section.sub ? 'h3' : 'h2', {}, section.heading));
  if (section.note) node.append(element('p', {class: 'note'}, section.note));
  const figures = element('div', {class: 'figures-of'});
  if (section.kind === 'table')
    figures.append(tableOf(section));
  else if (section.kind === 'text')
    figures.append(element('pre', {}, section.text));
  else
    for (const figure of FIGURES[section.kind](section)) figures.append(figure.build());
  node.append(figures);
  return node;
}

// --- light, dark, print

const dark = matchMedia('(prefers-color-scheme: dark)');
const print = matchMedia('print');
const root = document.documentElement;
const PAPER_WIDTH = '690px';  // A4 between its margins
let chosen = null;            // by the switch; null: as the system has it

function applyTheme() {
  root.dataset.theme = print.matches ? 'light' : chosen ?? (dark.matches ? 'dark' : 'light');
  const button = document.getElementById('theme');
  if (button) button.textContent = root.dataset.theme === 'dark' ? 'Light' : 'Dark';
}

function redraw() {
  applyTheme();
  for (const figure of Figure.all)
    if (figure.chart) figure.draw();
}

/** Charts with their tables, in light colours, as wide as paper. */
function preparePrint() {
  applyTheme();
  for (const figure of Figure.all) {
    figure.printing = true;
    figure.canvas.hidden = figure.tableOnly === true;
    figure.canvas.style.width = PAPER_WIDTH;
    figure.ensureTable();
    figure.draw();
    figure.chart?.getZr().flush();
  }
  for (const table of Table.all) table.print(true);
}

function endPrint() {
  applyTheme();
  for (const figure of Figure.all) {
    figure.printing = false;
    figure.canvas.hidden = figure.mode !== 'chart';
    figure.canvas.style.width = '';
    figure.draw();
  }
  for (const table of Table.all) table.print(false);
}

function buildPage() {
  const sections = JSON.parse(document.getElementById('data').textContent);
  const button = element('button', {
    id: 'theme',
    type: 'button',
    'aria-label': 'dark or light',
    onclick: () => {
      chosen = root.dataset.theme === 'dark' ? 'light' : 'dark';
      redraw();
    }
  });
  document.querySelector('header').prepend(button);
  applyTheme();
  const main = document.getElementById('sections');
  const links =
      sections
          .map((section, i) => [section, element('a', {href: `#section-${i}`}, section.heading)])
          .filter(([section]) => !section.sub)
          .map(([, link]) => link);
  if (links.length > 2) main.append(element('nav', {'aria-label': 'sections'}, ...links));
  main.append(...sections.map(buildSection));
  dark.addEventListener('change', redraw);
  print.addEventListener('change', () => (print.matches ? preparePrint() : endPrint()));
  // Paper is divided into pages when printing begins: what is shown on it has to be there before.
  addEventListener('beforeprint', preparePrint);
  addEventListener('afterprint', endPrint);
}

buildPage();
