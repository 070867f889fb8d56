#!/usr/bin/env bash
# Installs Chromium for the tests of the page, where none is there: by apt where that may be used, else as Playwright does.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-.venv/bin/python}"
if "$python" -m tests.addons.page.support.chromium >/dev/null; then
  exit 0
fi
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
within=() # a server that does not answer must not hold up the tests that need no browser
command -v timeout >/dev/null && within=(timeout --kill-after=10 300)
if command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null; then
  echo 'Installing Chromium by apt, for the tests of the page: half a minute, this once.'
  export DEBIAN_FRONTEND=noninteractive
  apt=("${within[@]}" "${as_root[@]}" apt-get -qq)
  { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 || true
fi
if ! "$python" -m tests.addons.page.support.chromium >/dev/null; then
  "${within[@]}" "$python" -m playwright install chromium >/dev/null 2>&1 || true
fi
if ! "$python" -m tests.addons.page.support.chromium; then
  echo 'Chromium cannot be installed here: tests of the page in a browser are skipped.'
fi
