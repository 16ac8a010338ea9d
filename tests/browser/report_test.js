// SPDX-License-Identifier: Apache-2.0
// Uses reports as a person does, in a real browser: charts are drawn (their pixels are counted by
// colour), zoom, tooltips, legends, tables, keys, the theme, print, and widths from 360 px to 4k.
// Screenshots go to $PENSTOCK_SCREENSHOTS (else the second argument).
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {existsSync, rmSync, symlinkSync} from 'node:fs';
import {join} from 'node:path';
import {pathToFileURL} from 'node:url';

import {openBrowser} from './chromium.js';
import {binary, runAll, runTests, source} from './running.js';

const sampleReport = process.argv[2];
const screenshots = process.env.PENSTOCK_SCREENSHOTS ?? process.argv[3] ?? 'screenshots';

const FORWARD = [0x00, 0x58, 0x8b], BACKWARD = [0x00, 0x94, 0x6c], RECOMPUTE = [0x3d, 0x38, 0x00];
const CAPACITY = [0xb8, 0x43, 0x0a], VIRIDIS_LOW = [0x44, 0x01, 0x54],
      VIRIDIS_HIGH = [0x1f, 0x9e, 0x89];
const FORWARD_DARK = [0x3d, 0x9b, 0xd6];

let browser, folder;

/** A page with what it complained about and asked for. */
async function open(file, {width = 1280, height = 900, dark = false} = {}) {
  const page =
      await browser.newPage({viewport: {width, height}, colorScheme: dark ? 'dark' : 'light'});
  page.complaints = [];
  page.on('pageerror', error => page.complaints.push(error.message));
  page.on('console', message => page.complaints.push(message.text()));
  page.on('request', request => {
    if (request.url() !== pathToFileURL(file).href)
      page.complaints.push(`request ${request.url()}`);
  });
  await page.goto(pathToFileURL(file).href);
  return page;
}

/** No error, no request, and done with the page. */
async function close(page) {
  assert.deepEqual(page.complaints, []);
  await page.close();
}

const figure = (page, index) => page.locator('figure').nth(index);
const canvas = (page, index) => figure(page, index).locator('canvas').first();
const button = (page, index, name) => figure(page, index).getByRole('button', {name, exact: true});

/** The page's charts draw in the next frame. */
const settled = page => page.evaluate(
    () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));

async function see(page, index) {
  await figure(page, index).scrollIntoViewIfNeeded();
  await canvas(page, index).waitFor();
  await settled(page);
}

/** What the browser does when it gets round to it. */
async function eventually(holds, what) {
  for (let frame = 0; frame < 300; ++frame) {
    if (await holds()) return;
  }
  assert.fail(`never: ${what}`);
}

/** How many pixels of a chart have each of these colours, give or take a little. */
async function countPixels(page, index, colours) {
  await settled(page);
  return figure(page, index).locator('.canvas').evaluate((node, wanted) => {
    const copy = document.createElement('canvas');
    const context = copy.getContext('2d', {willReadFrequently: true});
    const layers = [...node.querySelectorAll('canvas')];
    [copy.width, copy.height] = [layers[0].width, layers[0].height];
    for (const layer of layers) context.drawImage(layer, 0, 0);
    const {data} = context.getImageData(0, 0, copy.width, copy.height);
    const counts = wanted.map(() => 0);
    for (let i = 0; i < data.length; i += 4) {
      if (data[i + 3] < 250) continue;
      const hit = wanted.findIndex(c => c.every((v, k) => Math.abs(v - data[i + k]) < 6));
      if (hit >= 0) ++counts[hit];
    }
    return counts;
  }, colours);
}

const picture = (page, index) =>
    figure(page, index)
        .locator('.canvas')
        .evaluate(
            node => [...node.querySelectorAll('canvas')].map(layer => layer.toDataURL()).join());

function sample(kind) {
  const file = join(folder, `${kind}.html`);
  execFileSync(sampleReport, [kind, file]);
  return file;
}

function simulated() {
  const file = join(folder, 'simulated.html');
  execFileSync(binary, [
    'simulate', join(source, 'scenarios/gpt-2.2b-2bw.yaml'), '--engine', 'exact', '--report', file,
    '-o', '/dev/null'
  ]);
  return file;
}

/** A page of a sweep with every result that it has. */
function sweptWidely() {
  const file = join(folder, 'swept.html');
  execFileSync(binary, [
    'sweep', join(source, 'scenarios/gpt-2.2b-2bw.yaml'), '--over', 'stages=2,4,8', '--over',
    'microbatch_size=1:8:*2', '--over', 'schedule=1f1b,gpipe,pipedream-2bw', '--report', file, '-o',
    join(folder, 'swept.csv')
  ], {stdio: 'ignore'});
  return file;
}

const tests = {
  async 'draws every kind of section'() {
    const page = await open(sample('sections'));
    const drawn = [
      [0, [FORWARD, BACKWARD, RECOMPUTE]], [1, [FORWARD, BACKWARD]], [2, [FORWARD, CAPACITY]],
      [3, [FORWARD, CAPACITY]], [4, [FORWARD, BACKWARD]], [5, [FORWARD, BACKWARD]], [6, [FORWARD]],
      [7, [FORWARD]], [8, [FORWARD]]
    ];
    for (const [index, colours] of drawn) {
      await see(page, index);
      for (const count of await countPixels(page, index, colours))
        assert.ok(count > 100, `figure ${index}: ${count}`);
    }
    assert.equal(await page.locator('section.table tbody tr').count(), 3);
    assert.equal(
        await page.locator('td', {hasText: '<b>bold</b>'}).count(), 1, 'names are escaped');
    await close(page);
  },

  async 'zooms by keys, buttons and wheel, and shows all again'() {
    const page = await open(sample('sections'));
    await see(page, 0);
    const all = await countPixels(page, 0, [FORWARD]);
    await figure(page, 0).locator('.canvas').focus();
    await page.keyboard.press('+');
    await page.keyboard.press('+');
    for (let i = 0; i < 20; ++i)
      await page.keyboard.press('ArrowLeft');  // the forwards are at the left
    const [zoomed] = await countPixels(page, 0, [FORWARD]);
    assert.ok(zoomed > 1.8 * all[0], `${zoomed} of forward after ${all[0]}`);
    await page.keyboard.press('0');
    assert.deepEqual(await countPixels(page, 0, [FORWARD]), all);
    await button(page, 0, 'zoom in').click();
    assert.notDeepEqual(await countPixels(page, 0, [FORWARD]), all);
    await button(page, 0, 'show all').click();
    assert.deepEqual(await countPixels(page, 0, [FORWARD]), all);
    const box = await canvas(page, 0).boundingBox();
    await page.mouse.move(box.x + 150, box.y + 40);
    await page.keyboard.down('Control');
    await page.mouse.wheel(0, -300);
    await page.keyboard.up('Control');
    await eventually(
        async () => (await countPixels(page, 0, [FORWARD]))[0] > 1.05 * all[0], 'the wheel zooms');
    await close(page);
  },

  async 'says what an op is, by mouse and by keyboard'() {
    const page = await open(sample('sections'));
    await see(page, 0);
    const forward = await countPixels(page, 0, [FORWARD]);
    const box = await canvas(page, 0).boundingBox();
    const left = 8 + 6.6 * 'device 0'.length;  // of the chart; 33 s are as wide as the rest
    const at = second => box.x + left + (box.width - left - 16) * second / 33;
    await page.mouse.move(at(2.5), box.y + 20);
    const tip = figure(page, 0).locator('.tip').first();
    await tip.waitFor();
    assert.match(
        await tip.innerText(), /^0F2\s[\s\S]*forward[\s\S]*microbatch\s+2[\s\S]*length\s+1 s/);
    assert.deepEqual(await countPixels(page, 0, [FORWARD]), forward, 'what is pointed at stays');
    await page.mouse.move(at(12), box.y + 20);
    await page.waitForFunction(
        () => document.querySelector('.tip b').textContent === 'device 0: idle');
    await figure(page, 0).locator('.canvas').focus();
    await page.keyboard.press('Shift+ArrowRight');
    await page.keyboard.press('Shift+ArrowRight');
    await page.keyboard.press('Shift+ArrowDown');
    await page.waitForFunction(
        () => document.querySelector('.unseen').textContent.startsWith('1F0'));
    await close(page);
  },

  async 'hides what its legend is told to'() {
    const page = await open(sample('sections'));
    await see(page, 0);
    const [before, backward] = await countPixels(page, 0, [FORWARD, BACKWARD]);
    await button(page, 0, 'forward').click();
    assert.equal(await button(page, 0, 'forward').getAttribute('aria-pressed'), 'false');
    assert.deepEqual(await countPixels(page, 0, [FORWARD, BACKWARD]), [0, backward]);
    await page.keyboard.press('Enter');  // the button kept the focus
    assert.deepEqual(await countPixels(page, 0, [FORWARD, BACKWARD]), [before, backward]);
    await close(page);
  },

  async 'shows the table of every chart, sorted by its headings'() {
    const page = await open(sample('sections'));
    const rows = [64, 32, 4, 4, 4, 4, 3, 3, 3];
    for (const [index, count] of rows.entries()) {
      await see(page, index);
      await button(page, index, 'Table').click();
      assert.ok(await figure(page, index).locator('table').isVisible());
      assert.equal(await canvas(page, index).isVisible(), false);
      assert.equal(await figure(page, index).locator('tbody tr').count(), Math.min(count, 25));
    }
    const first = () => figure(page, 0).locator('tbody tr td').nth(7).innerText();
    assert.equal(await first(), '1 s');
    await button(page, 0, 'length').click();
    await button(page, 0, 'length ▲').click();
    assert.equal(await first(), '2 s');
    await button(page, 0, 'last page').click();
    assert.match(await figure(page, 0).locator('.pager').innerText(), /rows 51 to 64 of 64/);
    await button(page, 0, 'Chart').click();
    assert.ok((await countPixels(page, 0, [FORWARD]))[0] > 100);
    await close(page);
  },

  async 'lays two timelines on each other at an update'() {
    const page = await open(sample('sections'));
    await see(page, 1);
    const before = await picture(page, 1);
    await figure(page, 1).getByRole('combobox').selectOption('1');
    await settled(page);
    assert.notEqual(await picture(page, 1), before);
    await close(page);
  },

  async 'is dark where the system is, and as its switch says'() {
    const page = await open(sample('sections'), {dark: true});
    await see(page, 0);
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(await background(), 'rgb(22, 24, 27)');
    assert.ok((await countPixels(page, 0, [FORWARD_DARK]))[0] > 100);
    await page.screenshot({path: join(screenshots, 'report-dark.png')});
    await page.getByRole('button', {name: 'dark or light'}).click();
    assert.equal(await background(), 'rgb(255, 255, 255)');
    const [light, dark] = await countPixels(page, 0, [FORWARD, FORWARD_DARK]);
    assert.ok(light > 100 && dark === 0);
    await close(page);
  },

  async 'prints charts in light colours with their tables'() {
    const page = await open(sample('sections'), {dark: true});
    await see(page, 0);
    await page.emulateMedia({media: 'print'});
    await settled(page);
    assert.ok(await figure(page, 0).locator('table').isVisible());
    assert.equal(await figure(page, 0).locator('tbody tr').count(), 64, 'all rows');
    assert.ok((await canvas(page, 0).boundingBox()).width < 700, 'as wide as paper');
    assert.ok((await countPixels(page, 0, [FORWARD]))[0] > 100);
    assert.equal(await button(page, 0, 'Table').isVisible(), false);
    await page.screenshot({path: join(screenshots, 'report-print.png'), fullPage: true});
    await close(page);
  },

  async 'fits every width'() {
    const files = [sample('sections'), sample('sweep'), sample('scatter'), simulated()];
    for (const file of files) {
      for (const width of [360, 768, 1920, 3840]) {
        const page = await open(file, {width, height: 1000});
        await see(page, 0);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= width, `${file} is ${wide} wide on ${width}`);
        const box = await canvas(page, 0).boundingBox();
        const besides = file === files[2] && width > 800;  // two panels side by side
        assert.ok(box.width > (besides ? 0.4 : 0.85) * width && box.x + box.width <= width);
        const cut = await page.evaluate(
            () => [...document.querySelectorAll('.table td')].filter(
                td => td.checkVisibility() &&
                    td.getBoundingClientRect().right > innerWidth).length);
        if (width < 600) assert.equal(cut, 0, `cells of ${file} that are cut`);
        if (file === files[0])
          await page.screenshot({path: join(screenshots, `report-${width}.png`)});
        await close(page);
      }
    }
  },

  async 'is some screens long on a phone, and has everything'() {
    const page = await open(sample('sweep'), {width: 390, height: 844});
    const table = figure(page, 2);
    await table.scrollIntoViewIfNeeded();
    const tall = await page.evaluate(() => document.documentElement.scrollHeight);
    assert.ok(tall < 6000, `${tall} px`);
    assert.match(await table.locator('.pager').innerText(), /rows 1 to 10 of 10,000/);
    await table.getByRole('button', {name: 'last page'}).click();
    assert.equal(await table.locator('tbody tr').count(), 10);
    await page.setViewportSize({width: 1280, height: 844});
    await eventually(async () => await table.locator('tbody tr').count() === 25, 'wide again');
    await close(page);
    const many = await open(sweptWidely(), {width: 390, height: 844});
    assert.ok(await many.evaluate(() => document.documentElement.scrollHeight) < 6000);
    const columns = figure(many, 2);
    const shown = await columns.locator('th').count();
    assert.match(await columns.locator('summary').innerText(), /^Columns \(8 of \d\d\)$/);
    assert.equal(shown, 8);
    await columns.locator('summary').click();
    await columns.getByLabel('mfu', {exact: true}).check();
    assert.equal(await columns.locator('th').count(), 9);
    await close(many);
  },

  async 'marks a line of one point'() {
    const page = await open(sample('learning'));
    await see(page, 0);
    const [one] = await countPixels(page, 0, [FORWARD]);
    assert.ok(one > 20, `${one}`);
    await close(page);
  },

  async 'draws and zooms 65,536 ops'() {
    const started = performance.now();
    const page = await open(sample('timeline'));
    await see(page, 0);
    const opened = performance.now();
    const [forward, backward] = await countPixels(page, 0, [FORWARD, BACKWARD]);
    assert.ok(forward > 50_000 && backward > 100_000, `${forward}, ${backward}`);
    await figure(page, 0).locator('.canvas').focus();
    const before = performance.now();
    for (let i = 0; i < 10; ++i) {
      await page.keyboard.press('+');
      await settled(page);
    }
    const zoomed = performance.now();
    assert.notDeepEqual(await countPixels(page, 0, [FORWARD, BACKWARD]), [forward, backward]);
    console.log(`   opened in ${Math.round(opened - started)} ms, a zoom takes ${
        Math.round((zoomed - before) / 10)} ms`);
    await button(page, 0, 'Table').click();
    assert.match(await figure(page, 0).locator('.pager').innerText(), /of 65,536/);
    await close(page);
  },

  async 'shows 10,000 points as heat map, Pareto front and table'() {
    const page = await open(sample('sweep'));
    await see(page, 0);
    for (const count of await countPixels(page, 0, [VIRIDIS_LOW, VIRIDIS_HIGH]))
      assert.ok(count > 100);
    const best = await picture(page, 0);
    await figure(page, 0).getByLabel('schedule', {exact: true}).selectOption({label: 'gpipe'});
    await settled(page);
    assert.notEqual(await picture(page, 0), best);
    const box = await canvas(page, 0).boundingBox();
    await page.mouse.move(box.x + 60, box.y + 70);  // many microbatches on one stage: too large
    const tip = figure(page, 0).locator('.tip').first();
    await tip.waitFor();
    assert.match(
        await tip.innerText(),
        /stages 1, microbatches \d+, schedule gpipe\s+infeasible\s+device 0 needs more/);
    await page.getByLabel('Measure').selectOption('peak_memory');
    assert.match(await figure(page, 0).locator('h3').innerText(), /peak memory over stages/i);
    await see(page, 1);
    await button(page, 1, 'Table').click();
    const front = await figure(page, 1).locator('tbody tr').count();
    assert.ok(front > 2 && front < 26);
    await figure(page, 2).scrollIntoViewIfNeeded();
    assert.match(await figure(page, 2).locator('.pager').innerText(), /of 10,000/);
    assert.equal(
        await figure(page, 2).locator('p.note').innerText(),
        'The same wherever known: engine exact.');
    const headings = await figure(page, 2).locator('th').allInnerTexts();
    assert.deepEqual(
        headings.slice(0, 5),
        ['stages', 'microbatches', 'schedule', 'status', 'throughput, samples/s']);
    const reason = headings.indexOf('reason');
    assert.ok(reason > 4 && reason < headings.length - 1, 'where the results are read');
    const rates =
        (await figure(page, 2).locator('tbody td:nth-child(5)').allInnerTexts()).map(Number);
    assert.deepEqual(rates, [...rates].sort((a, b) => b - a), 'the best first');
    await button(page, 2, 'reason').click();
    await button(page, 2, 'reason ▲').click();
    assert.match(
        await figure(page, 2).locator('tbody tr').first().innerText(), /killed by signal 9/);
    await figure(page, 2).getByText('Columns').click();
    await figure(page, 2).getByLabel('iteration time').uncheck();
    assert.equal(await figure(page, 2).locator('th').count(), 7);
    await close(page);
  },

  async 'shows predicted over measured, and names every row'() {
    for (const dark of [false, true]) {
      const page = await open(sample('scatter'), {dark});
      await see(page, 0);
      const both = await picture(page, 0);
      await figure(page, 0).locator('.canvas').focus();
      await page.keyboard.press('ArrowRight');  // the furthest off comes first
      await page.waitForFunction(
          () => document.querySelector('.unseen').textContent.startsWith('<b>slow</b>'));
      assert.match(
          await figure(page, 0).locator('.tip').first().innerText(),
          /^<b>slow<\/b>\s+depth 1\s+−90 %\s+predicted\s+2 s\s+measured\s+20 s$/);
      await page.keyboard.press('Escape');
      await button(page, 0, 'depth 2').click();
      await settled(page);
      assert.notEqual(await picture(page, 0), both);
      await button(page, 0, 'Table').click();
      assert.match(await figure(page, 0).locator('.pager').innerText(), /of 41/);
      assert.equal(await figure(page, 0).locator('tbody td').first().innerText(), '<b>slow</b>');
      await button(page, 1, 'Table').click();
      assert.equal(await figure(page, 1).locator('tbody tr').count(), 1, 'no place for 0 bytes');
      await close(page);
    }
  },

  async 'opens on the first update and shows all when told to'() {
    const page = await open(simulated());
    await see(page, 2);
    const [, timeline] =
        await page.evaluate(() => JSON.parse(document.getElementById('data').textContent));
    const first = timeline.clocks[0].ends[timeline.end_update];
    assert.ok(first > 0 && first < 0.7 * timeline.end_s, `${first} of ${timeline.end_s}`);
    const picture0 = await picture(page, 2);
    const box = await canvas(page, 2).boundingBox();
    await page.mouse.move(box.x + box.width - 20, box.y + 20);  // past the last op of the update
    await figure(page, 2).locator('.tip').first().waitFor();
    await page.mouse.move(0, 0);
    await button(page, 2, 'show all').click();
    await settled(page);
    assert.notEqual(await picture(page, 2), picture0);
    await close(page);
  },

  async 'says where the time goes, and puts replicas that do the same into a row'() {
    const file = join(folder, 'tensor.html');
    execFileSync(
        binary, ['simulate', join(source, 'scenarios/llama-3-70b-h100.yaml'), '--report', file, '-o', '/dev/null']);
    const page = await open(file);
    await see(page, 0);
    assert.match(
        await figure(page, 0).locator('.legend').innerText(),
        /^computing \d\d\.\d %\s+tensor exchanges \d+(\.\d)? %\s+idle: warmup [\d.]+ %/);
    await button(page, 0, 'Table').click();
    const shares = await figure(page, 0).locator('tbody td:nth-child(2)').allInnerTexts();
    const all = shares.map(parseFloat).reduce((sum, share) => sum + share, 0);
    assert.ok(Math.abs(all - 100) < 0.3, `${shares}`);
    await button(page, 1, 'Table').click();
    assert.deepEqual(
        await figure(page, 1).locator('tbody td:nth-child(-n + 2)').allInnerTexts(),
        ['0', '4', '1', '4', '2', '4', '3', '4'], 'four stages of four replicas');
    const data = await page.evaluate(() => JSON.parse(document.getElementById('data').textContent));
    const named = data.find(s => s.kind === 'timeline').lanes.map(lane => lane.name);
    assert.deepEqual(named, ['stage 0', 'stage 1', 'stage 2', 'stage 3']);
    const busy = (await page.locator('section.table').last().locator('tbody td:nth-child(3)').allInnerTexts())
                     .map(parseFloat);
    assert.ok(busy[0] > 1);
    assert.deepEqual(busy, [...busy].sort((a, b) => b - a), 'links by load');
    await close(page);
  },

  async 'says on what it ran'() {
    const page = await open(simulated());
    assert.match(
        await page.locator('.summary').innerText(),
        /^pipedream-2bw, 8 stages, .*\nGPT-2\.2B on p3\.16xlarge .*; recompute full; software: none\n/);
    await close(page);
  },

  async 'shows memory by owner, and names capacities beside the chart'() {
    const page = await open(simulated());
    await see(page, 4);
    const legend = await figure(page, 4).locator('.legend').innerText();
    assert.match(legend, /weights[\s\S]*optimizer[\s\S]*activations[\s\S]*capacity \d/);
    await see(page, 3);
    assert.match(await figure(page, 3).locator('.legend').innerText(), /capacity \d/);
    await button(page, 4, 'Table').click();
    const cells = await figure(page, 4).locator('tbody tr').first().locator('td').count();
    assert.ok(cells >= 6, `${cells} columns`);
    await close(page);
  },

  async 'ends with a command that a shell takes back'() {
    const file = join(folder, "it's a run & more.html");
    execFileSync(binary, [
      'simulate', join(source, 'scenarios/gpt-2.2b-2bw.yaml'), '--engine', 'exact', '--report',
      file, '-o', '/dev/null'
    ]);
    const page = await open(file);
    const command = await page.locator('footer code').innerText();
    await close(page);
    rmSync(file);
    symlinkSync(binary, join(folder, 'penstock'));
    execFileSync('sh', ['-c', command], {env: {...process.env, PATH: `${folder}:${process.env.PATH}`}});
    assert.ok(existsSync(file), command);
  },

  async 'marks rows that do not fit, and tells busy from warm-up'() {
    for (const dark of [false, true]) {
      const page = await open(sample('sweep'), {dark});
      await figure(page, 2).scrollIntoViewIfNeeded();
      await figure(page, 2).getByRole('button', {name: 'last page'}).click();
      const bad = figure(page, 2).locator('tr.bad');
      assert.ok(await bad.count() > 0);
      const colour = node => node.evaluate(n => getComputedStyle(n).color);
      assert.notEqual(
          await colour(bad.first().locator('td').first()),
          await page.evaluate(() => getComputedStyle(document.body).color));
      const ratio = await page.evaluate(() => {
        const luminance = name => {
          const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
          const linear = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255)
                             .map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
          return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
        };
        const [low, high] = [luminance('--F'), luminance('--I')].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
      });
      assert.ok(ratio > 2, `dark ${dark}: ${ratio}`);
      await close(page);
    }
  },

  async 'reports what simulate found'() {
    const page = await open(simulated());
    await see(page, 2);
    assert.match(
        await page.locator('.figures').innerText(),
        /Fits\?\s+yes[\s\S]*How fast\?[\s\S]*samples\/s[\s\S]*bubble/);
    for (const count of await countPixels(page, 2, [FORWARD, BACKWARD, RECOMPUTE]))
      assert.ok(count > 100);
    assert.match(
        await page.locator('footer').innerText(), /penstock simulate .*gpt-2\.2b-2bw\.yaml/);
    await page.locator('footer summary').click();
    assert.match(await page.locator('footer pre').innerText(), /schedule: pipedream-2bw/);
    await page.screenshot({path: join(screenshots, 'report-simulate.png'), fullPage: true});
    await close(page);
  },

  async 'compares on one scale, and shows what does not fit'() {
    const file = join(folder, 'compared.html');
    execFileSync(binary, [
      'compare', join(source, 'scenarios/gpt-2.2b-2bw.yaml'), '--engine', 'exact', '--over',
      'schedule=1f1b,gpipe,pipedream-2bw', '--report', file, '-o', '/dev/null'
    ]);
    const page = await open(file);
    const figures = await page.locator('.figures').innerText();
    assert.match(figures, /Which is fastest\?\s+schedule=pipedream-2bw/);
    assert.match(figures, /Do all fit\?\s+1 of 3 do not/);
    await see(page, 0);
    for (const count of await countPixels(page, 0, [FORWARD, CAPACITY]))
      assert.ok(count > 100, 'a bar of what fits, and of what does not');
    const names = await page.locator('section.timeline > :is(h2, h3)').allInnerTexts();
    assert.deepEqual(names, ['1f1b', 'gpipe', 'pipedream-2bw'].map(n => `Timeline: schedule=${n}`));
    const sections = await page.evaluate(
        () => JSON.parse(document.getElementById('data').textContent)
                  .filter(s => s.kind === 'timeline')
                  .map(s => [s.axis_s, s.window_s]));
    assert.ok(sections.every(s => s.join() === sections[0].join()), `${sections}`);
    const count = await page.locator('figure').count();
    for (let i = 0; i < count; ++i) await figure(page, i).scrollIntoViewIfNeeded();
    await see(page, count - 1);
    for (const pixels of await countPixels(page, count - 1, [FORWARD, BACKWARD]))
      assert.ok(pixels > 100);
    await page.screenshot({path: join(screenshots, 'report-compare.png'), fullPage: true});
    await close(page);
  },

  async 'shows plans, all that were simulated, and what they do'() {
    const file = join(folder, 'plan.html');
    execFileSync(binary, [
      'plan', 'gpt-2.2b', '--cluster', 'p3.16xlarge', '--batch', '64', '--search', 'full',
      '--effort', '30', '--report', file, '-o', '/dev/null'
    ]);
    const page = await open(file);
    assert.match(await page.locator('.figures').innerText(), /What to run\?\s+\S+, \d+ stages? x \d/);
    const timelines = await page.locator('section.timeline').count();
    assert.ok(timelines > 0);
    const count = await page.locator('figure').count();
    for (let i = 0; i < count; ++i) await figure(page, i).scrollIntoViewIfNeeded();
    assert.match(await figure(page, 0).innerText(), /peak by owner/i);
    await see(page, 1);
    assert.match(await figure(page, 1).innerText(), /throughput against memory/i);
    await see(page, count - 1);
    for (const pixels of await countPixels(page, count - 1, [FORWARD, BACKWARD]))
      assert.ok(pixels > 100);
    await page.screenshot({path: join(screenshots, 'report-plan.png'), fullPage: true});
    await close(page);
    const printed = await open(file);
    await printed.emulateMedia({media: 'print'});
    await settled(printed);
    const plans = await printed.locator('section.table').first().locator('tbody tr').count();
    assert.equal(plans, timelines, 'a timeline of every plan');
    for (let i = count - timelines; i < count; ++i)
      assert.ok((await countPixels(printed, i, [FORWARD]))[0] > 100, `timeline of figure ${i} on paper`);
    await close(printed);
    const phone = await open(file, {width: 390, height: 844});
    const names = await phone.locator('section.table').first().locator('tbody tr').first().locator('td')
                      .evaluateAll(cells => cells.map(cell => cell.dataset.name));
    assert.deepEqual(
        names.slice(0, 6),
        ['plan', 'update', 'throughput, samples/s', 'rate of a GPU, tokens/s', 'MFU', 'memory'],
        'the answers, not the keys');
    const top = selector => phone.locator(selector).evaluate(n => n.getBoundingClientRect().top);
    assert.ok(await top('.figures') < await top('.summary'), 'the answers first');
    await close(phone);
  },
};

await runTests({
  needed: {'the sample': sampleReport},
  screenshots,
  open: openBrowser,
  tests: (opened, made) => {
    [browser, folder] = [opened, made];
    return runAll(tests);
  }
});
