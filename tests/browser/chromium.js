// SPDX-License-Identifier: Apache-2.0
// A headless Chromium that never leaves this machine.
import {existsSync} from 'node:fs';

const chromium = process.env.PENSTOCK_CHROMIUM ?? '/usr/bin/chromium';
const chromiumFlags = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--no-proxy-server',
];

/** Something this machine lacks: the test is skipped, not failed. */
export class Missing extends Error {}

async function findPlaywright() {
  try {
    return await import('playwright-core');
  } catch {
    throw new Missing('playwright-core is not installed (npm ci --prefix tests/browser)');
  }
}

/** A browser of playwright-core. Throws Missing. */
export async function openBrowser() {
  if (!existsSync(chromium)) throw new Missing(`${chromium} is not installed`);
  const playwright = await findPlaywright();
  return playwright.chromium.launch(
      {executablePath: chromium, args: chromiumFlags, timeout: 60_000});
}
