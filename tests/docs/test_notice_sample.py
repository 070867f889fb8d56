"""The sample of docs/evictor.md: its script as a process, on a file that changes as kubelet changes it."""

import os
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime

import pytest
import yaml

from tests.docs.pages import ROOT, blocks
from tests.popen import killed_on_failure
from webhook.kube.objects import keys
from webhook.kube.reclaim.holds import rfc3339

PAGE = ROOT / "docs" / "evictor.md"
MOUNT = "/etc/podinfo"

TRAINER = """#!/bin/sh
trap 'echo saved >> checkpoint' USR1
trap 'exit 0' TERM
echo "$@" > started
while [ ! -e broken ]; do /bin/sleep 0.02; done
exit 3
"""


class Container:
    """The sample's container: a process whose volume the test writes, and whose `train` saves when it is asked to."""

    def __init__(self, folder):
        self.folder = folder
        self.volume = folder / "podinfo"
        self.volume.mkdir()
        self.annotate({"mine": "yes"})
        for name, script in (("train", TRAINER), ("sleep", "#!/bin/sh\nexec /bin/sleep 0.05\n")):
            (folder / name).write_text(script)
            (folder / name).chmod(0o755)

    def annotate(self, annotations):
        """Write the annotations into a folder of their own and swap it in, as kubelet does."""
        fresh = self.volume / f"..{time.monotonic_ns()}"
        fresh.mkdir()
        (fresh / "annotations").write_text("".join(f'{key}="{value}"\n' for key, value in annotations.items()))
        (self.volume / "..data_tmp").symlink_to(fresh.name)
        os.replace(self.volume / "..data_tmp", self.volume / "..data")
        if not (self.volume / "annotations").is_symlink():
            (self.volume / "annotations").symlink_to("..data/annotations")

    def start(self):
        [pod] = [yaml.safe_load(block.text) for block in blocks(PAGE) if "downwardAPI" in block.text]
        [container] = pod["spec"]["containers"]
        assert container["volumeMounts"] == [{"name": "podinfo", "mountPath": MOUNT}]
        [script] = container["args"]
        command = [*container["command"], script.replace(MOUNT, shlex.quote(str(self.volume)))]
        environment = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        return subprocess.Popen(command, cwd=self.folder, env=environment, start_new_session=True)

    def has(self, name):
        """Wait for a file, and give its text."""
        deadline = time.monotonic() + 60
        while not (self.folder / name).exists() or not (self.folder / name).read_text():
            assert time.monotonic() < deadline, f"no {name}"
            time.sleep(0.01)
        return (self.folder / name).read_text()


@pytest.fixture
def container(tmp_path):
    return Container(tmp_path)


@pytest.fixture
def process(container):
    with killed_on_failure(container.start()) as started:
        assert container.has("started") == "--checkpoint-on USR1\n"
        yield started
        with suppress(ProcessLookupError):  # the watcher ended, too
            os.killpg(started.pid, signal.SIGKILL)  # effect of the end of its container on a watcher that still waits


def test_the_trainer_saves_once_at_the_notice_and_ends_on_sigterm(container, process):
    container.annotate({"mine": "no"})
    time.sleep(0.3)
    assert not (container.folder / "checkpoint").exists()
    container.annotate({"mine": "no", keys.EVICT_AT: rfc3339(int(datetime.now(UTC).timestamp()) + 30)})
    assert container.has("checkpoint") == "saved\n"
    time.sleep(0.3)
    assert process.poll() is None, "it continues until it is evicted"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert container.has("checkpoint") == "saved\n"


def test_the_container_ends_as_the_trainer_does(container, process):
    (container.folder / "broken").touch()
    assert process.wait(60) == 3
