"""Every benchmark can be started: what it imports and builds on import is still there."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
IMPORT_ALL = """
import importlib, sys
sys.path[:0] = sys.argv[1:3]
for name in sys.argv[3:]:
    importlib.import_module(name)
"""


def test_every_benchmark_can_be_started():
    names = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
    command = [sys.executable, "-c", IMPORT_ALL, str(ROOT / "benchmarks"), str(ROOT), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(names) >= 16
