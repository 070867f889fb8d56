"""The stand-in for `fairgate` is the command: its exit status, pipes, folder and environment, signals and end."""

import os
import signal
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.control_plane.test_processes import is_alive, wait_until
from tests.docs.pages import ROOT
from tests.docs.preloaded import stand_ins
from tests.popen import killed_on_failure

pytestmark = pytest.mark.slow

SERVE = "fairgate serve --policy {root}/policies/default --world world.yaml --certs certs.d --listen 127.0.0.1:0"
WORLD = "apiVersion: v1\nkind: List\nitems: []\n"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    with stand_ins(tmp_path_factory.mktemp("fairgate")) as found:
        yield found


@pytest.fixture
def shell(programs, tmp_path):
    def start(line, **environment):
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **environment}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        command = ["bash", "-c", line]
        return killed_on_failure(subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes))

    return start


@pytest.fixture
def server(shell, tmp_path):
    """A server that runs, and the id of its own process."""
    (tmp_path / "world.yaml").write_text(WORLD)
    with shell(f"exec {SERVE.format(root=ROOT)} --drain-seconds 0") as process:
        assert process.stdout.readline()
        yield process, fork_with(tmp_path)
        process.kill()


def fork_with(folder):
    """The process that works in a folder, and is not the stand-in."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_there = (process / "cwd").readlink() == folder
            if is_there and b"docs.preloaded" in (process / "cmdline").read_bytes():
                return int(process.name)
    raise AssertionError("no fork")


def test_pipes_environment_and_exit_status_are_as_in_a_shell(shell):
    with shell("fairgate policy schema | head -c 1; fairgate --nothing") as process:
        said = process.stdout.read()
    assert said.startswith("{")
    assert "No such option" in said
    assert process.returncode == 2
    with shell("fairgate", _FAIRGATE_COMPLETE="bash_source") as process:
        assert "complete" in process.stdout.read()


def test_a_signal_reaches_it(server):
    process, fork = server
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 0
    wait_until(lambda: not is_alive(fork))


def test_it_ends_when_its_parent_is_killed(server):
    process, fork = server
    assert is_alive(fork)
    process.kill()
    wait_until(lambda: not is_alive(fork))


def test_it_ends_with_the_block(shell, tmp_path, tmp_path_factory):
    (tmp_path / "world.yaml").write_text(WORLD)
    with ExitStack() as until_its_end:
        with stand_ins(tmp_path_factory.mktemp("other")) as programs:
            environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
            process = until_its_end.enter_context(shell(f"exec {SERVE.format(root=ROOT)}", **environment))
            assert process.stdout.readline()
            fork = fork_with(tmp_path)
        assert process.wait(90) == 1
    wait_until(lambda: not is_alive(fork))
