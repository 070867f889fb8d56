"""The demo as a user sees it: what it prints, the commands it suggests, and that it leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.control_plane.test_nothing_left import processes_with
from tests.control_plane.waiting import wait_for
from tests.docs.pages import ROOT, blocks

SHOWN = Path(__file__).parent / "golden" / "make-demo.txt"

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("built_control_plane", "helm_binary")]


@pytest.fixture
def folder():
    """A folder with a short name: the path of a socket in it may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="demo-") as path:
        yield Path(path)


@contextmanager
def demo(folder, keep=""):
    """The demo with all of its files under a folder, killed at the end if it still runs."""
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"}
    environment |= {"DEMO_PACE": "0", "DEMO_KEEP": keep}
    command = [sys.executable, "-m", "tests.demo"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process, words):
    """What it printed up to and including a line with these words."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError(f"it ended without {words!r}:\n{''.join(lines)}")


def stop_cleanly(process, number, folder):
    """Send a signal, check that no process or file is left, and return the rest of the output."""
    process.send_signal(number)
    rest = process.stdout.read()
    assert process.wait(90) == 0, rest
    deadline = time.monotonic() + 60
    while left := [*processes_with(str(folder)), *folder.iterdir()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    return rest


def without_names(text):
    """Lines without what differs between runs: node names, and spaces."""
    return [re.sub(r"node-\d", "node-N", " ".join(line.split())) for line in text.splitlines()]


def rows(text):
    return [line for line in text.splitlines() if line.startswith("│")]


def shown_in(page):
    """Return what a page shows of the demo."""
    [shown] = [block.text for block in blocks(ROOT / page) if block.text.startswith("$ make demo\n")]
    return shown


def run_suggested(commands):
    """Run the commands that the demo suggests in one shell, as a user in another terminal would."""
    lines = [line for line in commands.splitlines() if line.startswith("  ")]
    assert len(lines) == 6
    script = "\n".join(["set -x", *lines])
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_the_three_scenarios_print_their_numbers_and_the_suggested_commands_work(folder):
    with demo(folder) as process:
        printed = read_until(process, "What came of it")
        table = read_until(process, "The cluster stays up")
        suggested = read_until(process, "kubectl describe")
        shown, excerpt = SHOWN.read_text(), shown_in("README.md")
        assert rows(table) == rows(shown)
        assert set(without_names(shown + excerpt)) - {"$ make demo", "..."} <= set(without_names(printed + table))
        assert "exceeded quota: team a: requested 1, limit 20, used 20, reserved 0; largest holders:" in " ".join(
            printed.split()
        )
        assert "Exactly 8 of the borrowed pods were evicted, all on node-" in printed
        assert max(map(len, (printed + table).splitlines())) <= 100

        seen = run_suggested(suggested)
        assert "pod/large created" in seen
        assert "limit 40, used 40" in seen
        export, *_, describe = (line for line in suggested.splitlines() if line.startswith("  "))
        again = f"{export}\n{describe}"
        wait_for(lambda: "Reclaiming" in subprocess.getoutput(again), what="the Event on the large pod")
        assert "A a, B b; upper case guaranteed, lower preemptible" in seen
        assert "All processes and files are removed" in stop_cleanly(process, signal.SIGINT, folder)


def test_a_cluster_with_fairgate_without_the_comparison(folder):
    with demo(folder, keep="1") as process:
        printed = read_until(process, "The cluster stays up")
        assert "without Fairgate" not in printed.split("Two teams share the 40 GPUs.")[1].replace("runs without", "")
        seen = run_suggested(read_until(process, "kubectl describe"))
        assert "pod/large created" in seen
        assert "limit 40, used 40" in seen
        stop_cleanly(process, signal.SIGINT, folder)


def test_it_can_be_stopped_while_it_starts(folder):
    with demo(folder) as process:
        read_until(process, "Starting the control plane")
        deadline = time.monotonic() + 60
        while len(processes_with(str(folder))) < 3:  # the demo, its supervisor, and the first process of the cluster
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert "All processes and files are removed" in stop_cleanly(process, signal.SIGTERM, folder)
