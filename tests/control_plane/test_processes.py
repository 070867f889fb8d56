"""The supervisor, with `sleep` and shell scripts for components."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.control_plane.processes import ComponentError, Processes, free_ports
from tests.popen import killed_on_failure

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def processes():
    started = Processes()
    yield started
    started.close()


def is_alive(pid: int) -> bool:
    try:
        # A zombie has ended; it only waits to be reaped.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before the open, or between open and read
        return False


def wait_until(condition, *, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_close_kills_everything_and_removes_the_folder(processes):
    pids = [processes.start("a", ["sleep", "600"]), processes.start("b", ["sh", "-c", "trap '' TERM; sleep 600"])]
    processes.close()
    wait_until(lambda: not any(map(is_alive, pids)))
    assert not processes.folder.exists()


def test_close_kills_the_children_of_a_process_too(processes):
    processes.start("a", ["sh", "-c", "sh -c 'sleep 600 & sleep 600 & wait' & echo $!; exit 0"])
    wait_until(lambda: not processes.is_running("a"))
    orphan = int(processes.log("a"))
    assert is_alive(orphan)
    processes.close()
    assert not is_alive(orphan)


def test_close_twice_is_fine(processes):
    processes.close()
    processes.close()
    assert not processes.folder.exists()


def test_a_stopped_process_is_killed_as_well(processes):
    pid = processes.start("a", ["sleep", "600"])
    processes.send_signal("a", signal.SIGSTOP)
    processes.close()
    assert not is_alive(pid)


def test_ending_a_stopped_or_unstarted_process_is_allowed(processes):
    processes.end("a")
    pid = processes.start("a", ["sleep", "600"])
    processes.end("a")
    processes.end("a")
    assert not is_alive(pid)


def test_json_lines_are_found_among_other_lines(processes):
    assert processes.logged("a") == []
    said = '{"event": "one"}\nTraceback\n{"event": "two", "n": 2}'
    processes.start("a", ["echo", said])
    wait_until(lambda: not processes.is_running("a"))
    assert [line["event"] for line in processes.logged("a")] == ["one", "two"]
    assert processes.logged("a", "two") == [{"event": "two", "n": 2}]


def test_a_process_can_be_stopped_and_started_again(processes):
    first = processes.start("a", ["sleep", "600"])
    processes.stop("a")
    assert not processes.is_running("a")
    assert processes.start("a", ["sleep", "600"]) != first
    assert processes.is_running("a")


def test_a_process_that_ignores_sigterm_is_killed_when_the_time_is_over(processes):
    processes.start("a", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    wait_until(lambda: "ready" in processes.log("a"))
    processes.stop("a", timeout=0.3)
    assert not processes.is_running("a")


def test_a_dead_process_is_reported_with_its_log(processes):
    processes.start("a", ["sh", "-c", "echo no such flag >&2; exit 3"])
    wait_until(lambda: not processes.is_running("a"))
    with pytest.raises(ComponentError, match=r"a ended with exit code 3[\s\S]*no such flag"):
        processes.check_running("a")


def test_a_killed_process_is_reported_with_the_signal(processes):
    processes.start("a", ["sleep", "600"])
    processes.stop("a", signal.SIGKILL)
    with pytest.raises(ComponentError, match="was ended by SIGKILL"):
        processes.check_running("a")


def test_a_missing_binary_is_an_error_with_its_path(processes):
    with pytest.raises(ComponentError, match=r"a: /nowhere/a cannot be run \(No such file"):
        processes.start("a", ["/nowhere/a"])


def test_a_corrupt_binary_is_an_error_with_its_path(processes):
    binary = processes.folder / "corrupt"
    binary.write_bytes(b"\x7fELF not really")
    binary.chmod(0o755)
    with pytest.raises(ComponentError, match=r"corrupt cannot be run \(Exec format error\)"):
        processes.start("a", [binary])


def test_a_name_runs_once_only(processes):
    processes.start("a", ["sleep", "600"])
    with pytest.raises(ComponentError, match="running already"):
        processes.start("a", ["sleep", "600"])


def test_proxies_of_the_developer_do_not_reach_the_processes(processes, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
    processes.start("a", ["env"])
    wait_until(lambda: not processes.is_running("a"))
    assert "proxy.invalid" not in processes.log("a")
    assert f"HOME={processes.folder}" in processes.log("a")


def test_when_the_supervisor_is_killed_its_children_die():
    processes = Processes()
    pid = processes.start("a", ["sleep", "600"])
    processes._supervisor.kill()
    wait_until(lambda: not is_alive(pid))
    with pytest.raises(ComponentError, match="supervisor of the control plane is gone"):
        processes.is_running("a")
    processes.close()
    subprocess.run(["rm", "-r", processes.folder], check=True)  # the one way to leave a folder behind


OWNER = """
import sys, time
from tests.control_plane.processes import Processes
processes = Processes()
print(processes.folder, processes.start("a", ["sleep", "600"]), flush=True)
while True:  # a signal that comes just before one long sleep would be noticed after it
    time.sleep(0.1)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_an_owner_that_is_ended_by(number):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with killed_on_failure(owner):
        folder, pid = owner.stdout.readline().split()
        assert is_alive(int(pid))
        owner.send_signal(number)
    wait_until(lambda: not is_alive(int(pid)) and not Path(folder).exists())


def test_ports_differ():
    assert len(set(free_ports(20))) == 20


def test_a_port_of_another_process_that_runs_is_not_given_again(monkeypatch, tmp_path):
    monkeypatch.setattr("tests.control_plane.processes.PORTS", tmp_path)
    [first] = free_ports(1)
    drawn = iter([first, first, 20_001])
    monkeypatch.setattr(random, "randint", lambda *_: next(drawn))
    assert free_ports(1) == [20_001]
    [file] = tmp_path.glob(f"*/{first}")
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    file.write_bytes(gone.stdout.strip())
    drawn = iter([first])
    assert free_ports(1) == [first], "the process that had it has ended"
