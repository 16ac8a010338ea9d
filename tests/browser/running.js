// SPDX-License-Identifier: Apache-2.0
// What the browser's tests share: a browser for as long as they run, a folder for what they make,
// and what their exit codes say to meson.
import {mkdirSync, mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

import {Missing} from './chromium.js';

export const binary = process.env.PENSTOCK_BINARY;
export const source = process.env.PENSTOCK_SOURCE;

/** Runs them one after the other, by name; returns how many failed. */
export async function runAll(tests) {
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
      console.log(`ok ${name}`);
    } catch (error) {
      ++failed;
      console.log(`FAILED ${name}: ${error.stack}`);
    }
  }
  return failed;
}

/**
 * Runs `tests(opened, folder)`, which returns how many failed, with what `open(folder)` gives, and
 * closes that; `needed`: what has to be set, by name. What is missing skips the tests.
 */
export async function runTests({needed = {}, screenshots, open, tests}) {
  const folder = mkdtempSync(join(tmpdir(), 'penstock-browser-'));
  let opened;
  try {
    const all = {PENSTOCK_BINARY: binary, PENSTOCK_SOURCE: source, ...needed};
    const unset = Object.keys(all).filter(name => !all[name]);
    if (unset.length) throw new Missing(`not set: ${unset.join(', ')}`);
    opened = await open(folder);
    mkdirSync(screenshots, {recursive: true});
    process.exitCode = await tests(opened, folder) === 0 ? 0 : 1;
  } catch (error) {
    if (!(error instanceof Missing)) throw error;
    console.log(`skipped: ${error.message}`);
    process.exitCode = 77;
  } finally {
    await opened?.close();
    rmSync(folder, {recursive: true, force: true});
  }
}
