"""The files of docs/tasks/saving.md as processes, in a folder that stands for the paths of their container.

Of each loop only paths and the number of steps differ from the page, the seed, and a line after the step that logs it.
"""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.control_plane.waiting import wait_for
from tests.docs import pages

PAGE = pages.ROOT / "docs" / "tasks" / "saving.md"
STEPS = 200
STEP_SECONDS = 0.03
PLACES = {"/etc/podinfo": "podinfo", "/data": "data", "/var/run/secrets/kubernetes.io/serviceaccount": "account"}
AFTER_STEP = {"optimizer.step()": "step", "self.due = int(due)": "state.global_step - 1"}
"""The line after which a step is done, and its number from 0."""

_LOG = """import os, time
def log(step):
    line = f"{os.environ.get('RANK', '0')} {step}\\n".encode()
    file = os.open(%r, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)
    time.sleep(%r)
"""


def page_files():
    """The named files of the page, and those that it links to."""
    shown = {each.path: each.text for each in pages.script(PAGE) if isinstance(each, pages.File)}
    return shown | {file.name: file.read_text() for file in (PAGE.parent / "saving").iterdir()}


class Container:
    """A folder with the files of the page, the volumes that kubelet mounts, and what outlives the pod."""

    def __init__(self, folder: Path, *, steps: int = STEPS):
        self.folder, self._steps = folder, steps
        for place in PLACES.values():
            (folder / place).mkdir(parents=True)
        self.steps_file = folder / "steps"
        (folder / "logged.py").write_text(_LOG % (str(self.steps_file), STEP_SECONDS))
        for name, text in page_files().items():
            if name.endswith((".py", ".sh")):
                (folder / name).write_text(self.here(text))
        self.project({"evict-at": "", "name": "train-0"})

    def here(self, text):
        """The text of a file with the paths of this folder."""
        for path, place in PLACES.items():
            text = text.replace(path, str(self.folder / place))
        text = text.replace("10_000", str(self._steps)).replace(
            "import torch\n", "import torch; torch.manual_seed(1)\n"
        )
        for line, step in AFTER_STEP.items():
            text = text.replace(f"{line}\n", f"{line}; import logged; logged.log({step})\n")
        return text

    def project(self, files):
        """Write the files of the downwardAPI volume into a folder of their own and swap it in, as kubelet does."""
        volume = self.folder / "podinfo"
        fresh = volume / f"..{time.monotonic_ns()}"
        fresh.mkdir()
        for name, text in files.items():
            (fresh / name).write_text(text)
            if not (volume / name).is_symlink():
                (volume / name).symlink_to(f"..data/{name}")
        (volume / "..data_tmp").symlink_to(fresh.name)
        os.replace(volume / "..data_tmp", volume / "..data")

    def notice(self, at="2026-11-26T13:00:00Z"):
        self.project({"evict-at": at, "name": "train-0"})

    def start(self, *command, **environment):
        return subprocess.Popen(
            [*map(str, command)], cwd=self.folder, env={**os.environ, "OMP_NUM_THREADS": "1", **environment}
        )

    def kill(self):
        """End every process that runs in the folder, as the end of a container's first process does."""
        for each in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):
                if each.readlink() == self.folder:
                    os.kill(int(each.parent.name), signal.SIGKILL)

    def steps(self, rank="0"):
        """The steps that a rank has done, in order."""
        text = self.steps_file.read_text() if self.steps_file.exists() else ""
        return [int(step) for each, step in map(str.split, text.splitlines()) if each == rank]

    def done(self, count, rank="0"):
        """Wait until a rank has done so many steps."""
        wait_for(lambda: len(self.steps(rank)) >= count, what=f"{count} steps of rank {rank}", timeout=120)


def end(process, signum=signal.SIGTERM):
    """Send a signal, and return how the process ended."""
    process.send_signal(signum)
    return process.wait(60)
