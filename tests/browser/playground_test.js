// SPDX-License-Identifier: Apache-2.0
// The playground in a real browser: every shipped schedule gives the command's numbers to the last digit,
// what is chosen is simulated and drawn at once, and the page works without a server, on a phone, with
// a keyboard and in the dark. Screenshots go to $PENSTOCK_SCREENSHOTS (else the second argument).
import assert from 'node:assert/strict';
import {execFileSync, spawn} from 'node:child_process';
import {once} from 'node:events';
import {existsSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import {pathToFileURL} from 'node:url';
import {gzipSync} from 'node:zlib';

import {Missing, openBrowser} from './chromium.js';
import {binary, runAll, runTests, source} from './running.js';

const built = process.argv[2];
const screenshots = process.env.PENSTOCK_SCREENSHOTS ?? process.argv[3] ?? 'screenshots';
const MOST_BYTES = 2 * 2 ** 20;
let browser, folder;

const command = (...words) => execFileSync(binary, words, {cwd: source, encoding: 'utf8', maxBuffer: 1 << 28,
  env: {...process.env, PENSTOCK_HOME: source}});

async function open({width = 1280, height = 900, dark = false, hash = '', touch = false} = {}) {
  const context = await browser.newContext({viewport: {width, height}, colorScheme: dark ? 'dark' : 'light', hasTouch: touch,
    acceptDownloads: true});
  const page = await context.newPage();
  page.complaints = [];
  page.on('pageerror', error => page.complaints.push(error.message));
  page.on('console', message => {
    if (!message.text().startsWith('Canvas2D: Multiple readback')) page.complaints.push(message.text());  // ours, to count pixels
  });
  page.on('request', request => {
    if (!/^(file|data|blob):/.test(request.url())) page.complaints.push(`request ${request.url()}`);
  });
  await page.goto(pathToFileURL(built).href + hash);
  await page.waitForSelector('#took:not(:empty)');  // CSP forbids what waits for more
  return page;
}
async function close(page) {
  assert.deepEqual(page.complaints, []);
  await page.context().close();
}
const settled = page => page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
async function set(page, name, value) {
  await page.evaluate(([name, value]) => {
    const field = document.querySelector('#form')[name];
    field.value = value;
    field.dispatchEvent(new Event('input', {bubbles: true}));
  }, [name, String(value)]);
  await settled(page);
}
/** How many pixels of a canvas have about this colour. */
const pixels = (page, selector, [r, g, b]) => page.evaluate(([selector, r, g, b]) => {
  const canvas = document.querySelector(selector);
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4)
    if (Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 24) ++count;
  return count;
}, [selector, r, g, b]);
const shot = (page, name) => page.screenshot({path: join(screenshots, `${name}.png`), fullPage: true});

const tests = {
  'one file, 2 MB at most when it is compressed'() {
    const bytes = gzipSync(readFileSync(built), {level: 9}).length;
    console.log(`  ${(bytes / 2 ** 20).toFixed(2)} MiB compressed`);
    assert.ok(bytes <= MOST_BYTES, `${bytes} bytes`);
  },

  async 'every shipped schedule gives the numbers of the command'() {
    const page = await open();
    const names = JSON.parse(command('list', 'scenarios', '--format', 'json')).map(s => s.name ?? s).filter(name => name.startsWith('small-'));
    assert.ok(names.length > 30, `${names.length} scenarios`);
    let compared = 0;
    for (const name of names) {
      const theirs = JSON.parse(command('simulate', name, '--engine', 'auto', '--format', 'json', '--reproducible'));
      const {result, problems} = await page.evaluate(name => playground.simulate(0, playground.file(`scenarios/${name}.yaml`)), name);
      assert.ok(result, `${name}: ${JSON.stringify(problems)}`);
      for (const [key, value] of Object.entries(result)) {
        if (['scenario', 'devices', 'notes', 'engine_seconds', 'infeasible_because'].includes(key)) continue;
        const [whole, part] = key.split('.');
        assert.deepEqual(value, part ? theirs[whole][part] : theirs[whole], `${name}: ${key}`);
        ++compared;
      }
      for (const [i, device] of theirs.devices.entries())
        for (const key of ['busy_s', 'idle_s', 'stage_time_s', 'peak_memory_bytes', 'stash_peak', 'weight_versions_peak', 'staleness_max'])
          assert.equal(result.devices[i][key], device[key], `${name}: device ${i}, ${key}`);
    }
    assert.ok(compared > 15 * names.length, `${compared} numbers`);
    await close(page);
  },

  async 'what is downloaded is what the command simulates to the same'() {
    const page = await open({hash: '#schedule=zb-h1&stages=6&microbatches=20&forward=7.3&beside='});
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#download')]);
    const file = join(folder, 'mine.yaml');
    await download.saveAs(file);
    const theirs = JSON.parse(command('simulate', file, '--engine', 'exact', '--format', 'json'));
    const shown = await page.evaluate(() => playground.sides[0].result);
    assert.equal(shown.makespan_s, theirs.makespan_s);
    assert.equal(shown.bubble_fraction, theirs.bubble_fraction);
    await close(page);
  },

  async 'two schedules of the same work are drawn over one time'() {
    const page = await open();
    for (const side of [0, 1]) {
      const selector = `.side:nth-of-type(${side + 1}) .timeline`;
      assert.ok(await pixels(page, selector, [0x00, 0x58, 0x8b]) > 2000, `side ${side}: forward`);
    }
    assert.ok(await pixels(page, '.side:nth-of-type(1) .timeline', [0x00, 0x94, 0x6c]) > 2000, 'backward');
    assert.ok(await pixels(page, '.side:nth-of-type(2) .timeline', [0xb0, 0x78, 0x00]) > 1000, 'backward of the weights');
    const [one, two] = await page.evaluate(() => playground.sides.map(side => side.result.bubble_fraction));
    assert.ok(two < one, 'zb-h1 has the smaller bubble');
    await close(page);
  },

  async 'every schedule that can be chosen runs, and flushing ones do the same work'() {
    const page = await open();
    const all = await page.evaluate(() => [...document.querySelector('#form').schedule.options].map(({value}) =>
      [value, playground.simulate(0, playground.scenario(value))]));
    assert.ok(all.length > 30);
    for (const [name, {result, problems}] of all) {
      assert.ok(result, `${name}: ${problems?.[0].message}`);
      const work = result.devices.reduce((sum, device) => sum + device.busy_s, 0);
      // torchgpipe computes forwards again; without a flush several updates are simulated.
      if (name !== 'torchgpipe' && result.batches === 1) assert.ok(Math.abs(work - 4 * 8 * 0.030) < 1e-9, `${name}: ${work} s`);
    }
    await close(page);
  },

  async 'a choice shows at once and is in the link'() {
    const page = await open();
    await set(page, 'microbatches', 32);
    await set(page, 'schedule', 'gpipe');
    assert.match(await page.evaluate(() => location.hash), /schedule=gpipe.*microbatches=32|microbatches=32.*schedule=gpipe/);
    const there = await page.evaluate(() => playground.sides[0].result.makespan_s);
    const other = await open({hash: await page.evaluate(() => location.hash)});
    assert.equal(await other.evaluate(() => playground.sides[0].result.makespan_s), there);
    assert.equal(await other.locator('h2').first().textContent(), 'gpipe');
    await close(other);
    await close(page);
  },

  async '32 stages x 256 microbatches'() {
    const page = await open({hash: '#stages=32&microbatches=256&beside='});
    const took = [];
    for (let i = 0; i < 9; ++i) {
      await set(page, 'forward', 10 + i / 10);
      took.push(await page.evaluate(() => playground.took));
    }
    took.sort((a, b) => a - b);
    console.log(`  simulated and drawn in ${took[4].toFixed(1)} ms (median; fastest ${took[0].toFixed(1)} ms)`);
    assert.equal(await page.evaluate(() => playground.sides[0].arrays.count >= 2 * 32 * 256), true);
    await close(page);
  },

  async 'what is wrong is said where it stands'() {
    const page = await open();
    await set(page, 'costs', 'text');
    await set(page, 'text', 'model: {forward: 1 s, backward: 2 s}\nschedule: 1f1b\npipeline: {stagez: 4}\n');
    const said = await page.locator('.problem').first().textContent();
    assert.match(said, /scenario:3:12: .*did you mean 'stages'/);
    assert.equal(await page.locator('.answer').first().isVisible(), false);
    await close(page);
  },

  async 'models and clusters that are shipped'() {
    const page = await open({hash: '#costs=model&model=gpt-2.2b&cluster=p3.16xlarge&stages=8&microbatches=16&size=1&beside='});
    const result = await page.evaluate(() => playground.sides[0].result);
    assert.ok(result && result.tokens_per_s_per_device > 0, await page.locator('.problem').first().textContent());
    await close(page);
  },

  async 'keys move and zoom the timeline'() {
    const page = await open({hash: '#beside='});
    const ink = () => pixels(page, '.timeline', [0x00, 0x58, 0x8b]);
    const before = await ink();
    await page.locator('.timeline').first().focus();
    for (let i = 0; i < 6; ++i) await page.keyboard.press('+');
    await settled(page);
    assert.notEqual(await ink(), before);
    await page.keyboard.press('0');
    await settled(page);
    assert.equal(await ink(), before);
    await close(page);
  },

  async 'an op says what it is'() {
    const page = await open({hash: '#beside='});
    const box = await page.locator('.timeline').first().boundingBox();
    await page.mouse.move(box.x + 8, box.y + 8);
    await settled(page);
    assert.match(await page.locator('#tip').textContent(), /forward, microbatch 0\ndevice 0, stage 0\n/);
    await close(page);
  },

  async 'keys go from op to op'() {
    const page = await open({hash: '#beside='});
    await page.locator('.timeline').first().focus();
    const said = [];
    for (const key of ['.', '.', 'ArrowDown', ',', 'ArrowUp']) {
      await page.keyboard.press(key);
      said.push((await page.locator('#tip').textContent()).split('\n').slice(0, 2).join(', '));
    }
    assert.deepEqual(said, ['forward, microbatch 0, device 0, stage 0', 'forward, microbatch 1, device 0, stage 0',
      'forward, microbatch 0, device 1, stage 1', 'forward, microbatch 0, device 1, stage 1', 'forward, microbatch 1, device 0, stage 0']);
    await page.keyboard.press('Tab');
    await settled(page);
    assert.equal(await page.locator('#tip').isVisible(), false);
    await close(page);
  },

  async 'in a wide window two schedules stand side by side, one alone has all of it'() {
    const page = await open({width: 1720});
    const boxes = () => page.evaluate(() => [...document.querySelectorAll('.timeline')].map(canvas => canvas.getBoundingClientRect()).map(({left, top, width}) => ({left, top, width})));
    const [one, two] = await boxes();
    assert.equal(one.top, two.top);
    assert.equal(one.width, two.width);
    assert.ok(two.left >= one.left + one.width);
    await set(page, 'beside', '');
    assert.ok((await boxes())[0].width > 1.9 * one.width);
    await close(page);
  },

  async 'the report opens'() {
    const page = await open({hash: '#beside='});
    const [report] = await Promise.all([page.context().waitForEvent('page'), page.locator('.report').first().click()]);
    await report.waitForSelector('figure canvas');
    assert.match(await report.title(), /1f1b/);
    await page.context().close();
  },

  async 'served, it asks the full engine'() {
    const served = spawn(binary, ['serve'], {cwd: source, env: {...process.env, PENSTOCK_HOME: source}, stdio: ['ignore', 'pipe', 'inherit']});
    try {
      const url = (await once(served.stdout, 'data'))[0].toString().trim();
      const page = await (await browser.newContext()).newPage();
      const complaints = [];
      page.on('pageerror', error => complaints.push(error.message));
      page.on('console', message => complaints.push(message.text()));
      await page.goto(url + '#beside=');
      await page.locator('.ask').first().click();
      const said = page.locator('.said').first();
      await said.filter({hasText: /bubble/}).waitFor();
      assert.match(await said.textContent(), /^SimGrid: update 338 ms, run of 338 ms, bubble 29\.0 %$/);
      assert.deepEqual(complaints, []);
      await page.context().close();
    } finally {
      served.kill();
    }
  },

  async 'three widths, and the dark'() {
    for (const [name, options] of Object.entries({phone: {width: 390, height: 844, touch: true}, tablet: {width: 820, height: 1100},
      wide: {width: 1720, height: 1000}, dark: {width: 1280, dark: true}})) {
      const page = await open(options);
      await settled(page);
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wider <= 0, `${name}: ${wider} pixels too wide`);
      if (name === 'dark') assert.ok(await pixels(page, '.timeline', [0x3d, 0x9b, 0xd6]) > 2000, 'colours of the dark');
      await shot(page, `playground-${name}`);
      await close(page);
    }
  },
};

await runTests({
  needed: {'the playground (playground/build.sh makes it)': built},
  screenshots,
  open: () => {
    if (!existsSync(built)) throw new Missing(`${built} is not there: playground/build.sh makes it, with emscripten`);
    return openBrowser();
  },
  tests: (opened, made) => {
    [browser, folder] = [opened, made];
    return runAll(tests);
  }
});
