// SPDX-License-Identifier: Apache-2.0
// Opens penstock's traces in the real Catapult viewer and compares what it understood with what is
// in the file. Screenshots of every trace go to $PENSTOCK_SCREENSHOTS (else the first argument).
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { Catapult } from './catapult.js';
import { binary, runTests, source } from './running.js';

const screenshots = process.env.PENSTOCK_SCREENSHOTS ?? process.argv[2] ?? 'screenshots';

const model =
    '{forward: 1 ms, backward: 2 ms, output: 4 MiB, activation: 16 MiB, parameters: 64 MiB}';
const scenario = (stages, microbatches, keys) => `
model: ${model}
cluster: {devices: ${stages}, link: {latency: 1500 us, bandwidth: 10 GB/s}}
pipeline: {stages: ${stages}, microbatches: ${microbatches}}
${keys}`;

// `compute`: slices on every compute lane, counted by hand; `overlap`: messages need more lanes.
const cases = [
  { name: 'gpt-2.2b-2bw', file: 'scenarios/gpt-2.2b-2bw.yaml', devices: 8 },
  { name: 'overlapped', devices: 4, compute: 16, overlap: true, endings: ['.json', '.json.gz'],
    text: scenario(4, 8, 'schedule: gpipe') },
  { name: 'coupled', devices: 4, compute: 16,
    text: scenario(4, 8, 'schedule: 1f1b\ntransfers: coupled') },
  { name: 'blocking', devices: 4, compute: 16,
    text: scenario(4, 8, 'schedule: 1f1b\ntransfers: blocking') },
  { name: 'no-flush', devices: 4, compute: 16, overlap: true,
    text: scenario(4, 1, 'schedule: pipedream\nbatches: 8') },
  { name: 'reductions', devices: 8, compute: 32, reductions: 4,
    text: scenario(4, 4, 'schedule: 2bw\nbatches: 4')
        .replace('microbatches', 'width: 2, reduction: {overlap: next-batch}, microbatches')
        .replace('parameters', 'gradients: 64 MiB, parameters')
        .replace('devices: 4', 'devices: 8').replace('1500 us', '10 us') },
  { name: 'large', devices: 64, compute: 1024, endings: ['.json.gz'],
    text: scenario(64, 512, 'schedule: 1f1b').replace('1500 us', '10 us') },
];

function writeTrace(folder, test, ending) {
  const input = test.file ? join(source, test.file) : join(folder, `${test.name}.yaml`);
  if (test.text) writeFileSync(input, test.text);
  const trace = `${test.name}${ending}`;
  execFileSync(binary, ['simulate', input, '--trace', join(folder, trace), '-o', '/dev/null'],
               { stdio: ['ignore', 'inherit', 'inherit'] });
  return trace;
}

function readEvents(path) {
  const bytes = readFileSync(path);
  return JSON.parse(path.endsWith('.gz') ? gunzipSync(bytes) : bytes).traceEvents;
}

const lane = e => `${e.pid}/${e.tid}`;
const countBy = (events, key) => {
  const counts = new Map();
  for (const e of events) counts.set(key(e), (counts.get(key(e)) ?? 0) + 1);
  return counts;
};
const isSorted = numbers => numbers.every((n, i) => i === 0 || numbers[i - 1] <= n);

/** What the file says, independent of the viewer. */
function describeFile(events) {
  const of = phase => events.filter(e => e.ph === phase);
  const names = what => new Map(of('M').filter(e => e.name === what)
      .map(e => [what.startsWith('process') ? e.pid : lane(e), Object.values(e.args)[0]]));
  return {
    slices: countBy(of('X'), lane), counters: countBy(of('C'), e => e.pid),
    flows: of('s').length,
    processes: names('process_name'), processSort: names('process_sort_index'),
    threads: names('thread_name'), threadSort: names('thread_sort_index'),
    labels: names('process_labels'),
  };
}

function checkProcess(seen, file, test) {
  assert.equal(seen.name, file.processes.get(seen.pid));
  assert.deepEqual(seen.labels, file.labels.get(seen.pid).split(', '));
  assert.equal(seen.sort, file.processSort.get(seen.pid));
  assert.deepEqual(seen.threads.slice(0, 2).map(t => t.name), ['compute', 'bubble']);
  assert.ok(isSorted(seen.threads.map(t => t.sort)), `lanes of ${seen.name} are out of order`);
  for (const thread of seen.threads) {
    const key = `${seen.pid}/${thread.tid}`;
    assert.equal(thread.name, file.threads.get(key));
    assert.equal(thread.sort, file.threadSort.get(key));
    assert.equal(thread.slices, file.slices.get(key) ?? 0, `slices on ${key} ${thread.name}`);
  }
  const reductions = seen.threads.filter(t => t.name === 'reduction').map(t => t.slices);
  assert.deepEqual(reductions, test.reductions ? [test.reductions] : []);
  if (test.compute) assert.equal(seen.threads[0].slices, test.compute);
  assert.deepEqual(seen.counters.map(c => c.name), ['memory']);
  assert.ok(seen.counters[0].series.includes('activations'));
  assert.equal(seen.counters[0].samples, file.counters.get(seen.pid));
}

function checkFlows(flows, expected) {
  assert.equal(flows.length, expected);
  for (const [start, end] of flows) {
    assert.ok(start && end, 'a flow without its two slices');
    assert.match(start.title, /^send (act|grad) \d+$/);
    assert.equal(end.title, start.title.replace('send', 'recv'));
    assert.equal(end.microbatch, start.microbatch);
    assert.notEqual(end.pid, start.pid);
  }
}

function check(seen, file, test) {
  assert.deepEqual(seen.warnings, []);
  assert.deepEqual(seen.processes.map(p => p.name),
                   Array.from({ length: test.devices }, (_, d) => `device ${d}`));
  for (const process of seen.processes) checkProcess(process, file, test);
  const shown = seen.processes.flatMap(p => p.threads).reduce((sum, t) => sum + t.slices, 0);
  assert.equal(shown, [...file.slices.values()].reduce((a, b) => a + b, 0));
  assert.ok(file.flows > 0);
  checkFlows(seen.flows, file.flows);
  const sends = seen.processes[0].threads.filter(t => t.name.startsWith('send act'));
  assert.equal(sends.length > 1, test.overlap ?? false, 'more than one lane for overlapping sends');
}

async function takeScreenshots(page, trace) {
  await page.evaluate(() => tidy());
  await page.screenshot({ path: join(screenshots, `${trace}.png`) });
  await page.evaluate(() => showStretch(0.4, 0.6));
  await page.screenshot({ path: join(screenshots, `${trace}.zoomed.png`) });
}

async function run(catapult, folder) {
  let failed = 0;
  for (const test of cases) {
    for (const ending of test.endings ?? ['.json']) {
      const trace = writeTrace(folder, test, ending);
      const { page, seen, errors } = await catapult.load(trace);
      await takeScreenshots(page, trace);
      await page.close();
      try {
        check(seen, describeFile(readEvents(join(folder, trace))), test);
        assert.deepEqual(errors, []);
        console.log(`ok ${trace}`);
      } catch (error) {
        ++failed;
        console.log(`FAILED ${trace}: ${error.message}`);
      }
    }
  }
  return failed;
}

await runTests({ screenshots, open: folder => Catapult.open(folder), tests: run });
