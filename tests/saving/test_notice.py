"""The module and the signal's sample of docs/tasks/saving.md as processes; files change as kubelet changes them."""

import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
import yaml

from tests.control_plane.waiting import wait_for
from tests.docs.pages import blocks
from tests.popen import killed_on_failure
from tests.saving.recipe import PAGE, Container, end, page_files
from webhook.kube.objects import keys

LOOP = """
import sys, time
from pathlib import Path
from notice import END, ENDED, Notice

state, notice = Path("state"), Notice()
step = int(state.read_text()) if state.exists() else 0
while not Path("enough").exists():
    time.sleep(0.02)
    step += 1
    Path("done").open("a").write(f"{step}\\n")
    if due := notice.due():
        state.write_text(str(step))
        Path("saves").open("a").write(f"{due}\\n")
        notice.saved()
    if due == END:
        sys.exit(ENDED)
"""
TRAINER = """#!/bin/sh
trap 'echo saved >> checkpoint' USR1
trap 'exit 0' TERM
echo "$@" > started
while [ ! -e broken ]; do /bin/sleep 0.02; done
exit 3
"""


@pytest.fixture
def container(tmp_path):
    return Container(tmp_path)


def lines(container, name):
    path = container.folder / name
    return path.read_text().splitlines() if path.exists() else []


def has(container, name):
    """Wait for a file, and give its text."""
    return wait_for((container.folder / name).read_text, what=name)


def test_a_loop_saves_once_for_each_time_that_is_announced_and_ends_after_sigterm_with_its_work_saved(container):
    (container.folder / "loop.py").write_text(LOOP)
    with killed_on_failure(container.start(sys.executable, "loop.py", KUBERNETES_SERVICE_HOST="")) as process:
        wait_for(lambda: len(lines(container, "done")) > 2, what="some steps")
        assert not lines(container, "saves")
        container.notice("2026-11-26T13:00:00Z")
        wait_for(lambda: lines(container, "saves") == ["1"], what="a save")
        container.notice("")
        container.notice("2026-11-26T14:00:00Z")
        wait_for(lambda: lines(container, "saves") == ["1", "1"], what="a save for another time")
        assert end(process) == 128 + signal.SIGTERM
    assert lines(container, "saves") == ["1", "1", "2"]
    with killed_on_failure(container.start(sys.executable, "loop.py")) as process:
        before = len(lines(container, "done"))
        wait_for(lambda: len(lines(container, "done")) > before, what="further steps")
        (container.folder / "enough").touch()
        assert process.wait(60) == 0
    done = lines(container, "done")
    assert done == [str(step) for step in range(1, len(done) + 1)], "none is lost, and none is done again"


def test_a_checkpoint_that_cannot_be_stated_stops_no_loop_and_says_why(container):
    script = "from notice import Notice; Notice().saved(); print('goes on')"
    command = [sys.executable, "-c", script]
    for host in ("", "127.0.0.1", "fd00::1", "not a host"):
        environment = {**os.environ, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "1"}
        done = subprocess.run(
            command, cwd=container.folder, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout == "goes on\n"
        assert done.stderr.startswith("checkpointed-at is not set: ")
        assert done.stderr.count("\n") == 1


def test_each_pod_of_the_page_projects_the_notice_where_the_module_reads_it():
    pods = [yaml.safe_load(block.text) for block in blocks(PAGE) if "downwardAPI:" in block.text]
    assert [pod["kind"] for pod in pods] == ["Job", "Pod"]
    for spec in (pods[0]["spec"]["template"]["spec"], pods[1]["spec"]):
        mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
        assert mounts["podinfo"] == "/etc/podinfo"
        (files,) = (each["downwardAPI"]["items"] for each in spec["volumes"] if each["name"] == "podinfo")
        paths = {each["path"]: each["fieldRef"]["fieldPath"] for each in files}
        assert paths["evict-at"] == f"metadata.annotations['{keys.EVICT_AT}']"
    named = {
        "job.yaml",
        "trainer.yaml",
        "worker.sh",
        "notice.py",
        "plain.py",
        "elastic.py",
        "ray_train.py",
        "huggingface.py",
    }
    assert page_files().keys() == named


class Trainer:
    """The container of the signal's sample: its `train` saves when it is asked to."""

    def __init__(self, container):
        self.container = container
        for name, script in (("train", TRAINER), ("sleep", "#!/bin/sh\nexec /bin/sleep 0.05\n")):
            (container.folder / name).write_text(script)
            (container.folder / name).chmod(0o755)

    def start(self):
        pods = [yaml.safe_load(block.text) for block in blocks(PAGE) if "--checkpoint-on" in block.text]
        (inside,) = pods[0]["spec"]["containers"]
        script = inside["args"][0].replace("/etc/podinfo", shlex.quote(str(self.container.folder / "podinfo")))
        environment = {"PATH": f"{self.container.folder}:{os.environ['PATH']}"}
        command = [*inside["command"], script]
        return subprocess.Popen(command, cwd=self.container.folder, env=environment, start_new_session=True)


@pytest.fixture
def process(container):
    with killed_on_failure(Trainer(container).start()) as started:
        assert has(container, "started") == "--checkpoint-on USR1\n"
        yield started
        with suppress(ProcessLookupError):  # the watcher ended, too
            os.killpg(started.pid, signal.SIGKILL)  # effect of the end of its container on a watcher that still waits


def test_the_trainer_saves_once_at_the_notice_and_ends_on_sigterm(container, process):
    container.notice("")
    time.sleep(0.3)
    assert not (container.folder / "checkpoint").exists()
    container.notice()
    assert has(container, "checkpoint") == "saved\n"
    time.sleep(0.3)
    assert process.poll() is None, "it continues until it is evicted"
    assert end(process) == 0
    assert has(container, "checkpoint") == "saved\n"


def test_the_container_ends_as_the_trainer_does(container, process):
    (container.folder / "broken").touch()
    assert process.wait(60) == 3
