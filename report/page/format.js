// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them. Data is in seconds, bytes, bytes/s and shares; a unit's prefix is
// chosen by the value, or for a whole axis by its largest one.
const PREFIXES = {
  s: [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns']],
  bytes: [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']],
  'bytes/s': [[1e12, 'TB/s'], [1e9, 'GB/s'], [1e6, 'MB/s'], [1e3, 'kB/s'], [1, 'B/s']],
  fraction: [[0.01, '%']],
};

/** The prefix for values up to `most`: {factor, name}. */
function scaleOf(unit, most) {
  const prefixes = PREFIXES[unit];
  if (!prefixes) return {factor: 1, name: unit};
  const size = Math.abs(most) * 1.0005;  // 999.6 ms is shown with three digits: as 1 s
  if (size === 0) return {factor: 1, name: {bytes: 'B', fraction: '%'}[unit] ?? unit};
  const [factor, name] = prefixes.find(([f]) => size >= f) ?? prefixes.at(-1);
  return {factor, name};
}

// As many digits as a prediction deserves; times of a run, of which differences count, have more.
const DIGITS = 3, MOMENT_DIGITS = 5;

/** So many significant digits, whole numbers all of theirs; thousands separated. */
function formatNumber(value, significant = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e12 || size < 1e-4)) return value.toExponential(significant - 1);
  const before = size >= 1 ? Math.floor(Math.log10(size)) + 1 : 0;
  const text = value.toLocaleString(
      'en-US', {maximumFractionDigits: size < 1 ? significant : Math.max(0, significant - before)});
  return text.replace('-', '−');
}

/** Of a percentage fewer: a tenth of a percent, and below 1 % two digits. */
function digitsOf(value, {factor, name}) {
  if (name !== '%') return name ? DIGITS : 4;
  return Math.abs(value) < 10 * factor ? DIGITS - 1 : DIGITS;
}

function formatIn(value, scale, significant = digitsOf(value, scale)) {
  const text = formatNumber(value === null ? null : value / scale.factor, significant);
  return text === '–' || !scale.name ? text : `${text} ${scale.name}`;
}

/** "2.05 s", "9.55 GiB", "12.5 %", "1,024". */
function format(value, unit, significant) {
  if (typeof value === 'string') return value;
  return formatIn(value ?? null, scaleOf(unit, value ?? 0), significant);
}
/** When something happened. */
const formatMoment = seconds => format(seconds, 's', MOMENT_DIGITS);

const label = (name, unit) => (unit ? `${name}, ${unit}` : name);
const spaced = name => name.replaceAll('_', ' ');
const largest = values => values.reduce((most, v) => (v > most ? v : most), 0);

/** A step of 1, 2 or 5 times a power of ten that divides `most` into about five. */
function roundStep(most) {
  const rough = most / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find(f => f * power >= rough) * power;
}

/** How a value axis from 0 is labelled: the name with the prefix, and round ticks in it. */
function axisText(name, unit, most) {
  const scale = scaleOf(unit, most);
  return {
    name: label(name, scale.name),
    // Round numbers of bytes are no round numbers of GiB.
    ...(unit === 'bytes' && most > 0 ? {interval: roundStep(most / scale.factor) * scale.factor} :
                                       {}),
    axisLabel: {
      formatter: value => formatNumber(value / scale.factor),
      ...(unit === 'bytes' ? {showMaxLabel: false} : {})
    },
  };
}

function escapeHtml(text) {
  return String(text).replace(
      /[&<>"]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'})[c]);
}

/** A tooltip: a heading and rows of [name, text, colour]. */
function tip(heading, rows) {
  const dot = colour => (colour ? `<i style="background:${colour}"></i>` : '');
  const lines = rows.map(
      ([name, text, colour]) =>
          `<tr><td>${dot(colour)}${escapeHtml(name)}</td><td>${escapeHtml(text)}</td></tr>`);
  return `<div class="tip"><b>${escapeHtml(heading)}</b><table>${lines.join('')}</table></div>`;
}

/** Numbers packed by report/section.cpp. */
function unpack(text, type) {
  if (!text) return new type(0);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; ++i) bytes[i] = raw.charCodeAt(i);
  return new type(bytes.buffer);
}
