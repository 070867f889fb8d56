#!/usr/bin/env bash
# Installs Chromium for the tests of the page, where none is there: by apt where that may be used, else as Playwright does.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-.venv/bin/python}"
if "$python" -m tests.page.support.chromium >/dev/null; then
  exit 0
fi
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
if command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null; then
  echo 'Installing Chromium by apt, for the tests of the page: half a minute, this once.'
  export DEBIAN_FRONTEND=noninteractive
  install=("${as_root[@]}" apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core)
  { "${as_root[@]}" apt-get update -qq && "${install[@]}"; } >/dev/null 2>&1 || true
fi
"$python" -m tests.page.support.chromium >/dev/null || "$python" -m playwright install chromium >/dev/null 2>&1 || true
if ! "$python" -m tests.page.support.chromium; then
  echo 'Chromium cannot be installed here: tests of the page in a browser are skipped.'
fi
