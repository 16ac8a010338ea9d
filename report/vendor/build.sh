#!/bin/sh
# Makes echarts.min.js and its checksum again from package-lock.json. Needs npm and the network.
set -eu
cd "$(dirname "$0")"
npm ci --no-audit --no-fund
npx esbuild entry.js --bundle --minify --format=iife --global-name=echarts --target=es2020 \
  --charset=utf8 --legal-comments=none --banner:js="$(cat licence.txt)" --outfile=echarts.min.js
sha256sum echarts.min.js > echarts.min.js.sha256
