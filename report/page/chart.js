// SPDX-License-Identifier: Apache-2.0
// A figure: a chart, its legend, its table, and what keys do. Subclasses say what is drawn.
//
// The legend is made of buttons, so that it can be reached by keyboard and wraps on small screens.
// Charts are made when they come near the screen, and again whenever colours change.
const ZOOM_STEP = 1.5;
const PAN_STEP = 0.1;  // of what is seen
// Okabe's and Ito's, on light paper with those darkened that would hardly be seen on it.
const OKABE_ITO = ['#0072b2', '#e69f00', '#009e73', '#d55e00', '#56b4e9', '#cc79a7', '#f0e442'];
const OKABE_ITO_ON_LIGHT =
    ['#00588b', '#b07800', '#00946c', '#d55e00', '#2a8fcb', '#b8619a', '#6b6300'];
const VIRIDIS = [
  '#440154', '#482878', '#3e4989', '#31688e', '#26828e', '#1f9e89', '#35b779', '#6ece58', '#b5de2b',
  '#fde725'
];

// From the one on, and until before the other, they stand 3:1 off dark and light paper.
const VIRIDIS_ON_DARK = 4, VIRIDIS_ON_LIGHT = 6;
const isDark = () => document.documentElement.dataset.theme === 'dark';

/** Viridis, as far as it can be seen on the page's paper. */
function ramp() {
  return isDark() ? VIRIDIS.slice(VIRIDIS_ON_DARK) : VIRIDIS.slice(0, VIRIDIS_ON_LIGHT);
}

/** Black or white, which stands out more from a colour: at least 4.5:1 from any. */
function inkOn(colour) {
  const [red, green, blue] =
      [1, 3, 5]
          .map(i => parseInt(colour.slice(i, i + 2), 16) / 255)
          .map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? '#000' : '#fff';
}

/** What lies at a share from 0 to 1 of the way through these colours. */
function between(colours, share) {
  const at = Math.min(Math.max(share, 0), 1) * (colours.length - 1);
  const from = Math.min(Math.floor(at), colours.length - 2);
  const part = (colour, i) => parseInt(colour.slice(i, i + 2), 16);
  const mixed = [1, 3, 5].map(i => {
    const [a, b] = [part(colours[from], i), part(colours[from + 1], i)];
    return Math.round(a + (b - a) * (at - from)).toString(16).padStart(2, '0');
  });
  return `#${mixed.join('')}`;
}

/** Colours for `count` things in order: told apart while they are few, else a ramp. */
function palette(count) {
  const few = isDark() ? OKABE_ITO : OKABE_ITO_ON_LIGHT;
  if (count <= few.length) return few.slice(0, count);
  return Array.from({length: count}, (_, i) => between(ramp(), i / (count - 1)));
}

function theme() {
  return {
    paper: css('--paper'),
    ink: css('--ink'),
    faint: css('--faint'),
    line: css('--line'),
    idle: css('--idle'),
    bad: css('--bad')
  };
}

class Figure {
  static all = [];

  // What subclasses offer:
  title() { return ''; }
  option() { return {}; }  // of ECharts, without what `common` adds
  legend() { return []; }  // [{name, colour}]
  tableData() { return null; }
  height() { return 320; }
  controls() { return []; }  // elements for the tool bar
  steps() { return []; }     // {seriesIndex, dataIndex} that the arrow keys visit
  get zooms() { return false; }
  get range() { return [0, 1]; }  // of the x axis of what zooms
  drawn() {}                      // after every drawing

  constructor(section) {
    this.section = section;
    this.hidden = new Set();
    this.mode = 'chart';
    this.step = -1;
    Figure.all.push(this);
  }

  /** The element; called once, by the page. */
  build() {
    this.canvas = element(
        'div',
        {class: 'canvas', tabindex: 0, role: 'application', onkeydown: event => this.key(event)});
    this.legendNode = element('div', {class: 'legend', role: 'group', 'aria-label': 'legend'});
    this.tableNode = element('div', {class: 'table-box', hidden: true});
    this.live = element('p', {class: 'unseen', 'aria-live': 'polite'});
    this.bar = element('div', {class: 'bar'});
    this.node =
        element('figure', {}, this.bar, this.legendNode, this.canvas, this.tableNode, this.live);
    this.drawBar();
    // Before ECharts, which would keep the page from scrolling.
    this.canvas.addEventListener(
        'wheel', event => this.wheel(event), {capture: true, passive: false});
    new IntersectionObserver(entries => {
      if (entries.some(e => e.isIntersecting)) this.ensure();
    }, {rootMargin: '600px'}).observe(this.node);
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    return this.node;
  }

  drawBar() {
    const view = ['chart', 'table'].map(
        mode => toggle(
            mode === 'chart' ? 'Chart' : 'Table', this.mode === mode, () => this.show(mode)));
    const zoom = this.zooms ?
        [
          ['+', 'zoom in', () => this.zoom(ZOOM_STEP)],
          ['−', 'zoom out', () => this.zoom(1 / ZOOM_STEP)],
          ['All', 'show all', () => this.setWindow([0, 100])],
        ]
            .map(
                ([text, name, onclick]) =>
                    element('button', {type: 'button', 'aria-label': name, onclick}, text)) :
        [];
    this.bar.replaceChildren(
        element('h3', {}, this.title()), ...this.controls(),
        element('span', {class: 'buttons'}, ...zoom),
        element('span', {class: 'buttons', role: 'group', 'aria-label': 'view'}, ...view));
  }

  show(mode) {
    this.mode = mode;
    this.canvas.hidden = this.legendNode.hidden = mode !== 'chart';
    this.tableNode.hidden = mode === 'chart';
    if (mode === 'table') this.ensureTable();
    this.drawBar();
    this.bar.querySelector('[aria-label=view] [aria-pressed=true]').focus({preventScroll: true});
    if (mode === 'chart') this.resize();
  }

  ensureTable() {
    if (!this.tableNode.hasChildNodes()) this.tableNode.append(new Table(this.tableData()).node);
  }

  /** Selections changed what is shown. */
  changed() {
    this.tableNode.replaceChildren();
    if (this.mode === 'table') this.ensureTable();
    this.drawBar();
    this.draw();
  }

  ensure() {
    if (!this.chart) this.draw();
  }

  draw() {
    if (this.mode !== 'chart' && !this.printing) return;
    this.canvas.style.height = `${this.height()}px`;
    this.chart ??= this.connect(echarts.init(this.canvas, null, {renderer: 'canvas'}));
    this.chart.resize();
    this.colours = theme();
    const option = this.option();
    this.chart.setOption({...this.common(option), ...option}, {notMerge: true});
    this.drawLegend();
    this.drawn();
  }

  connect(chart) {
    chart.on('datazoom', () => {
      const {start, end} = chart.getOption().dataZoom[0];
      this.window = [start, end];
    });
    return chart;
  }

  common(option) {
    const {ink, line, paper} = this.colours;
    const names = this.legend().map(entry => entry.name);
    return {
      animation: false,
      textStyle: {fontFamily: 'system-ui, sans-serif', color: ink},
      aria: {enabled: true, label: {description: this.description()}},
      tooltip: {
        confine: true,
        backgroundColor: paper,
        borderColor: line,
        textStyle: {color: ink, fontSize: 12},
        ...this.tooltip()
      },
      legend: {
        show: false,
        data: names,
        selected: Object.fromEntries(names.map(name => [name, !this.hidden.has(name)]))
      },
    };
  }

  tooltip() { return {}; }

  description() {
    const keys =
        this.zooms ? 'Plus and minus zoom, arrows move, 0 shows all.' : 'Arrows visit its values.';
    return `${this.title() || this.section.heading}: a chart. ${
        keys} The same data is in its table.`;
  }

  /** A value axis in our colours. */
  axis(extra = {}) {
    const {faint, ink, line} = this.colours;
    return {
      ...extra,
      nameTextStyle: {color: faint, ...extra.nameTextStyle},
      axisLabel: {color: ink, fontSize: 11, ...extra.axisLabel},
      axisLine: {lineStyle: {color: line}},
      axisTick: {lineStyle: {color: line}},
      splitLine: {lineStyle: {color: line}, ...extra.splitLine}
    };
  }

  drawLegend() {
    const entries = this.legend();
    this.legendNode.replaceChildren(...entries.map(({name, colour, fixed}) => {
      const mark = element('i');
      mark.style.background = colour;
      if (fixed) return element('span', {}, mark, name);
      const button = toggle('', !this.hidden.has(name), () => this.toggleSeries(name));
      button.dataset.name = name;
      button.append(mark, name);
      return button;
    }));
  }

  toggleSeries(name) {
    this.hidden[this.hidden.has(name) ? 'delete' : 'add'](name);
    this.draw();
    [...this.legendNode.children].find(b => b.dataset.name === name)?.focus();
  }

  resize() {
    if (!this.chart || this.canvas.hidden || this.canvas.clientWidth === this.chart.getWidth())
      return;
    this.draw();
  }

  // --- what is seen of the x axis, in percent

  get seen() { return this.window ?? [0, 100]; }

  setWindow([start, end]) {
    const width = Math.min(Math.max(end - start, 1e-3), 100);
    start = Math.min(Math.max(start, 0), 100 - width);
    this.window = [start, start + width];
    this.chart.dispatchAction({type: 'dataZoom', dataZoomIndex: 0, start, end: start + width});
  }

  /** `fixed`: the place on the axis that stays where it is, in percent. */
  zoom(factor, fixed = (this.seen[0] + this.seen[1]) / 2) {
    const [start, end] = this.seen;
    this.setWindow([fixed - (fixed - start) / factor, fixed + (end - fixed) / factor]);
  }

  wheel(event) {
    event.stopPropagation();
    if (!this.zooms || !this.chart || !event.ctrlKey) return;
    event.preventDefault();
    const [from, to] = this.range;
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    const fixed = (this.chart.convertFromPixel({xAxisIndex: 0}, x) - from) / (to - from) * 100;
    this.zoom(event.deltaY < 0 ? ZOOM_STEP : 1 / ZOOM_STEP, Math.min(Math.max(fixed, 0), 100));
  }

  pan(share) {
    const [start, end] = this.seen;
    this.setWindow([start + share * (end - start), end + share * (end - start)]);
  }

  zoomOption() {
    const [start, end] = this.seen;
    const {faint, line} = this.colours;
    return [
      {
        type: 'inside',
        xAxisIndex: 0,
        filterMode: 'none',
        start,
        end,
        minSpan: 1e-3,
        zoomOnMouseWheel: false
      },
      {
        type: 'slider',
        xAxisIndex: 0,
        filterMode: 'none',
        start,
        end,
        minSpan: 1e-3,
        height: 18,
        bottom: 4,
        showDataShadow: false,
        brushSelect: false,
        borderColor: line,
        labelFormatter: '',
        handleStyle: {borderColor: faint},
        moveHandleSize: 0,
        textStyle: {color: faint}
      },
    ];
  }

  // --- keys

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || !this.chart) return;
    const actions = {
      '+': () => this.zoom(ZOOM_STEP),
      '=': () => this.zoom(ZOOM_STEP),
      '-': () => this.zoom(1 / ZOOM_STEP),
      0: () => this.setWindow([0, 100]),
      Home: () => this.setWindow([0, 100]),
      ArrowLeft: () => this.arrow(-1, event.shiftKey),
      ArrowRight: () => this.arrow(1, event.shiftKey),
      Escape: () => this.chart.dispatchAction({type: 'hideTip'}),
    };
    const zoomOnly = !['ArrowLeft', 'ArrowRight', 'Escape'].includes(event.key);
    const action = actions[event.key];
    if (!action || (zoomOnly && !this.zooms)) return this.otherKey(event);
    event.preventDefault();
    action();
  }

  otherKey() {}

  arrow(direction, shift) {
    if (this.zooms && !shift) return this.pan(direction * PAN_STEP);
    const steps = this.steps();
    if (!steps.length) return;
    this.step = (this.step + direction + steps.length) % steps.length;
    this.chart.dispatchAction({type: 'showTip', ...steps[this.step]});
    this.say();
  }

  /** The tooltip's words, for screen readers. */
  say() {
    this.live.textContent =
        [...this.canvas.querySelectorAll('.tip b, .tip td')].map(e => e.textContent).join(' ');
  }
}
