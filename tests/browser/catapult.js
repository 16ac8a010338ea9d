// SPDX-License-Identifier: Apache-2.0
// The Catapult viewer (Debian's golang-1.19-src carries it) in a headless Chromium, offline.
import { createServer } from 'node:http';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Missing, openBrowser } from './chromium.js';

const here = dirname(fileURLToPath(import.meta.url));
function findViewer() {
  const root = '/usr/share';
  const versions = existsSync(root) ? readdirSync(root).filter(name => /^go-/.test(name)) : [];
  for (const version of versions.sort().reverse()) {
    const folder = join(root, version, 'src/cmd/trace/static');
    if (existsSync(join(folder, 'trace_viewer_full.html'))) return folder;
  }
  throw new Missing('the Catapult viewer is not installed (Debian: apt install golang-1.19-src)');
}

/** Serves the page, the viewer's two files and everything in `folder`. */
function serve(viewer, folder) {
  const files = {
    '/': join(here, 'viewer.html'),
    '/trace_viewer_full.html': join(viewer, 'trace_viewer_full.html'),
    '/webcomponents.min.js': join(viewer, 'webcomponents.min.js'),
  };
  const server = createServer((request, response) => {
    const path = new URL(request.url, 'http://localhost').pathname;
    const file = files[path] ?? join(folder, path);
    if (!existsSync(file)) return response.writeHead(404).end();
    const type = { html: 'text/html', js: 'text/javascript' }[file.split('.').pop()];
    response.writeHead(200, { 'Content-Type': type ?? 'application/octet-stream' });
    response.end(readFileSync(file));
  });
  return new Promise(done => server.listen(0, '127.0.0.1', () => done(server)));
}

export class Catapult {
  /** Starts the browser and a server for the traces in `folder`. Throws Missing. */
  static async open(folder) {
    const viewer = findViewer();
    const browser = await openBrowser();
    const self = new Catapult();
    self.browser = browser;
    self.server = await serve(viewer, folder);
    return self;
  }

  async close() {
    await this.browser.close();
    this.server.close();
  }

  /** Loads a trace of the folder; returns what the viewer understood, and the page. */
  async load(name) {
    const page = await this.browser.newPage({ viewport: { width: 1600, height: 1000 } });
    page.setDefaultTimeout(240_000);
    const errors = [];
    page.on('pageerror', error => errors.push(error.message));
    await page.goto(`http://127.0.0.1:${this.server.address().port}/`);
    await page.evaluate(url => showTrace(url), `/${name}`);
    const seen = await page.evaluate(() => describeModel());
    return { page, seen, errors };
  }
}
