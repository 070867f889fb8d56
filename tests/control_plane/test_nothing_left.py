"""A test run that is killed or interrupted leaves no process and no file."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.popen import killed_on_failure

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).parents[2]

TEST_THAT_HANGS = """
import time, pathlib

def test_hangs(control_plane):
    pathlib.Path(__file__).with_name("folder").write_text(str(control_plane.folder))
    while True:
        time.sleep(0.1)
"""


def processes_with(text: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:  # it ended while we looked, or is not ours
            continue
        if text.encode() in environment:
            found.append(process.name)
    return found


@pytest.fixture
def hanging_run(tmp_path):
    test = tmp_path / "test_hangs.py"
    test.write_text(TEST_THAT_HANGS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.control_plane.fixtures", "-p", "no:cacheprovider"]
    run = subprocess.Popen(
        [*command, f"--rootdir={tmp_path}", "-c", os.devnull, test],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that Ctrl-C reaches its process group and not ours
    )
    with killed_on_failure(run):
        announced = tmp_path / "folder"
        while not (announced.exists() and announced.read_text()):
            assert run.poll() is None, "the test run exited"
            time.sleep(0.1)
        yield run, Path(announced.read_text())
        run.kill()


@pytest.mark.usefixtures("built_control_plane")
@pytest.mark.parametrize(
    ("number", "to_group"),
    [
        pytest.param(signal.SIGKILL, False, id="SIGKILL of pytest"),
        pytest.param(signal.SIGINT, True, id="Ctrl-C, which the whole process group gets"),
    ],
)
def test_nothing_is_left_over(hanging_run, number, to_group):
    run, folder = hanging_run
    assert len(processes_with(str(folder))) >= 5
    (os.killpg if to_group else os.kill)(run.pid, number)
    run.wait(90)
    deadline = time.monotonic() + 60
    while processes_with(str(folder)) or folder.exists():
        assert time.monotonic() < deadline, f"left: {processes_with(str(folder))}, {folder} exists: {folder.exists()}"
        time.sleep(0.1)
