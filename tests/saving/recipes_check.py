"""The loops of docs/tasks/saving.md with their real libraries, on CPU: what is saved, and where they resume.

`make test-saving` runs this with what the dependency group `saving` has, which is large: it is no part of `make test`.
"""

import os
import signal
import subprocess
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.control_plane.processes import free_ports
from tests.control_plane.waiting import wait_for
from tests.docs.pages import ROOT
from tests.popen import killed_on_failure
from tests.saving.recipe import STEPS, Container, end

BIN = Path(os.environ.get("SAVING_ENVIRONMENT", ROOT / ".venv-saving")) / "bin"
PYTHON, TORCHRUN = BIN / "python", BIN / "torchrun"
ENDED = 128 + signal.SIGTERM
ALL = list(range(STEPS))
PLAIN = (PYTHON, "plain.py")
TWO_RANKS = (TORCHRUN, "--nproc-per-node", "2", "--standalone", "elastic.py")
STATE = "import sys, torch; print(torch.load(sys.argv[1])['model'])"


@pytest.fixture
def container(tmp_path):
    made = Container(tmp_path / "container")
    yield made
    made.kill()


@pytest.fixture
def weights(tmp_path):
    """The weights of a file, as text."""
    reader = Container(tmp_path / "reader")

    def read(container, name="state.pt"):
        shown = reader.folder / "shown"
        script = f"{STATE[:-1]}, file=open('shown', 'w'))"
        assert reader.start(PYTHON, "-c", script, container.folder / "data" / name).wait(60) == 0
        return shown.read_text().replace("module.", "")

    return read


@pytest.fixture
def undisturbed(tmp_path, weights):
    """The weights of a run that nothing interrupts."""
    container = Container(tmp_path / "undisturbed")
    assert container.start(*PLAIN).wait(120) == 0
    assert container.steps() == ALL
    return weights(container)


def saved(container):
    return wait_for((container.folder / "data" / "state.pt").stat, what="a checkpoint").st_mtime_ns


def test_a_loop_goes_on_after_the_notice_and_from_its_last_step_after_sigterm(container, weights, undisturbed):
    with killed_on_failure(container.start(*PLAIN)) as process:
        container.done(5)
        container.notice()
        first = saved(container)
        container.done(len(container.steps()) + 5)
        assert (process.poll(), saved(container)) == (None, first), "one notice, one save"
        assert end(process) == ENDED
    assert len(container.steps()) < STEPS
    assert container.start(*PLAIN).wait(120) == 0
    assert container.steps() == ALL
    assert weights(container) == undisturbed


def test_without_sigterm_what_was_done_since_the_save_is_done_again_and_nothing_else(container, weights, undisturbed):
    with killed_on_failure(container.start(*PLAIN)) as process:
        container.done(5)
        container.notice()
        saved(container)
        container.done(len(container.steps()) + 5)
        assert end(process, signal.SIGKILL) == -signal.SIGKILL
    before = container.steps()
    assert container.start(*PLAIN).wait(120) == 0
    after = container.steps()[len(before) :]
    assert 5 < after[0] <= before[-1]
    assert after == ALL[after[0] :]
    assert weights(container) == undisturbed


def test_the_ranks_of_torchrun_save_after_the_same_step_and_go_on_from_it(container, weights, undisturbed):
    with killed_on_failure(container.start(*TWO_RANKS)) as process:
        container.done(5, "1")
        container.notice()
        saved(container)
        assert end(process) == 1
    assert container.steps("0") == container.steps("1")
    assert container.start(*TWO_RANKS).wait(120) == 0
    assert container.steps("0") == container.steps("1") == ALL
    assert weights(container) == undisturbed


def test_sigusr1_ends_torchruns_agent_with_nothing_saved(container):
    with killed_on_failure(container.start(*TWO_RANKS)) as process:
        container.done(5, "1")
        assert end(process, signal.SIGUSR1) == -signal.SIGUSR1
        container.kill()
    assert not (container.folder / "data" / "state.pt").exists()


def test_agents_that_stay_go_on_without_the_evicted_one(container, weights, undisturbed):
    endpoint = f"127.0.0.1:{free_ports(1)[0]}"
    shared = ("--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "10")
    rendezvous = ("--rdzv-backend", "c10d", "--rdzv-id", "train", "--rdzv-endpoint", endpoint)

    def agent(is_host):
        conf = f"is_host={is_host},last_call_timeout=3"
        return container.start(TORCHRUN, *shared, *rendezvous, "--rdzv-conf", conf, "elastic.py")

    with ExitStack() as stack:
        stays, evicted = (stack.enter_context(killed_on_failure(agent(is_host))) for is_host in (1, 0))
        container.done(5, "1")
        assert end(evicted) == 1
        assert stays.wait(200) == 0
    both = sorted(container.steps("0") + container.steps("1"))
    together = len(both) - STEPS
    assert 5 <= together < STEPS
    assert both == sorted([*ALL, *ALL[:together]]), "on both until the eviction, then on one, each once"
    assert weights(container) == undisturbed


@pytest.mark.parametrize(
    ("command", "status"),
    [
        pytest.param((PYTHON, "huggingface.py"), ENDED, id="one process"),
        pytest.param((TORCHRUN, "--nproc-per-node", "2", "--standalone", "huggingface.py"), 1, id="two ranks"),
    ],
)
def test_the_trainer_saves_by_its_callback_and_goes_on(container, command, status):
    with killed_on_failure(container.start(*command)) as process:
        container.done(5)
        container.notice()
        wait_for(lambda: checkpoints(container), what="a checkpoint")
        container.done(len(container.steps()) + 5)
        assert (process.poll(), len(checkpoints(container))) == (None, 1)
        assert end(process) == status
    assert len(checkpoints(container)) == 2
    half = container.folder / "data" / "run" / f"checkpoint-{STEPS}"
    half.mkdir()  # a save that SIGKILL cut off
    assert container.start(*command).wait(120) == 0
    assert container.steps() == ALL


RAY_STEPS = 1000
SHIM = """#!/bin/sh
echo "$*" >> calls
"""


@pytest.fixture
def ray_cluster():
    """A Ray cluster of two workers: its address, their ids, and a way to end and add nodes."""
    command = [str(PYTHON), str(Path(__file__).with_name("ray_cluster.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        address, *nodes = process.stdout.readline().split()

        def do(*words):
            print(*words, file=process.stdin, flush=True)
            assert process.stdout.readline() == "done\n"

        yield address, nodes, do
        process.stdin.close()


def drain(container):
    """Run the page's script of a worker, with a `ray` that only notes how it is called; return its calls."""
    shim = container.folder / "ray"
    shim.write_text(SHIM)
    shim.chmod(0o755)
    path = f"{container.folder}:{os.environ['PATH']}"
    assert container.start("bash", "worker.sh", PATH=path, FAIRGATE_HEAD="head:6379").wait(60) == 0
    calls = container.folder / "calls"
    assert calls.read_text() == "start --block --address head:6379\n"
    container.notice(datetime.fromtimestamp(time.time() + 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    (words,) = wait_for(
        lambda: [line.split() for line in calls.read_text().splitlines() if "drain" in line], what="the drain"
    )
    return words


def test_ray_train_saves_when_a_node_is_drained_and_goes_on_from_there_on_another_one(tmp_path, ray_cluster):
    container, (address, nodes, do) = Container(tmp_path / "container", steps=RAY_STEPS), ray_cluster
    words = drain(container)
    deadline = words.index("--deadline-remaining-seconds") + 1
    assert 50 < int(words[deadline]) <= 60
    words[deadline] = "15"
    with killed_on_failure(container.start(PYTHON, "ray_train.py", RAY_ADDRESS=address)) as process:
        container.done(5, "1")
        subprocess.run([BIN / "ray", *words, "--address", address, "--node-id", nodes[0]], check=True, timeout=60)
        reports = container.folder / "data" / "ray" / "train"
        wait_for(lambda: [*reports.glob("checkpoint_*/state.pt")], what="a checkpoint", timeout=60)
        container.done(len(container.steps()) + 20)
        time.sleep(15)
        do("remove", nodes[0])
        do("add")
        assert process.wait(250) == 0
    for rank in ("0", "1"):
        steps = container.steps(rank)
        (again,) = (index for index in range(1, len(steps)) if steps[index] <= steps[index - 1])
        assert steps[:again] == list(range(again)), "without a break until the node was lost"
        assert steps[again:] == list(range(steps[again], RAY_STEPS)), "then from the checkpoint to the end"
        assert 5 < steps[again] < again


def checkpoints(container):
    return [*(container.folder / "data" / "run").glob("checkpoint-*/trainer_state.json")]
