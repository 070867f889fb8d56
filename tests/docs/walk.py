"""Follows a page as a reader would: writes the files that it shows, runs its commands in order, compares the output."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.control_plane.build import binary_path
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.processes import ComponentError, free_ports
from tests.control_plane.versions import HELM, KUBERNETES
from tests.docs import pages
from tests.docs.alike import is_alike
from tests.docs.excluded import EXCLUDED_COMMANDS
from tests.docs.release import Release
from webhook.kube.registration.static_files import WEBHOOKS

SECONDS = 480
PATIENCE_SECONDS = 120
STOP_SECONDS = 90
# Commands that run until they are stopped; a reader has them in another terminal.
_STAYS = re.compile(
    r"^(?:\w+=\S+ )*"
    r"(?:fairgate (?:serve|evict(?!.* --dry-run)|tryout|page)|kubectl fairgate (?:page|status .*--watch))\b"
)
# Commands that only read are repeated until their output is that of the page: a cluster takes its time.
# These end with 1 for a refusal, a warning, a difference.
_MAY_SAY_NO = re.compile(r"\bfairgate (?:bypassed|doctor|explain|policy|replay|review)\b")
_WAITS = "fairgate uninstall"
_REGISTERED = [each.path for each in WEBHOOKS]
_DEPLOYS = re.compile(r"^helm (?:install|upgrade(?: --install)?|rollback|uninstall) fairgate\b")
# A machine for tests need not have curl; this does what the pages ask of it.
_CURL = f"""#!{sys.executable}
import ssl, sys, urllib.request
ca, url = sys.argv[sys.argv.index("--cacert") + 1], sys.argv[-1]
print(urllib.request.urlopen(url, context=ssl.create_default_context(cafile=ca)).read().decode(), end="")
"""
_LOOKS = re.compile(r"^(?:kubectl (?:get|describe|events|logs|fairgate)|curl|fairgate (?:status|explain|report))\b")


class Reader:
    """A person at a shell, in a folder that begins empty, with kubectl, helm and Fairgate installed.

    `fairgate` is a folder with another program of this name.
    """

    def __init__(self, folder: Path, *, cluster: ControlPlane | None = None, fairgate: Path | None = None):
        self.folder, self.cluster = folder / "work", cluster
        self.folder.mkdir()
        home, programs = folder / "home", folder / "bin"
        programs.mkdir()
        (home / ".kube").mkdir(parents=True)
        if cluster:
            (home / ".kube" / "config").write_text(cluster.kubeconfig.read_text())
            self.release = Release(cluster, fairgate or Path(sys.executable).parent)
            (programs / "helm").symlink_to(binary_path(HELM, "helm"))
            kubectl = programs / "kubectl"
            kubectl.write_text(self.release.kubectl(binary_path(KUBERNETES, "kubectl")))
            kubectl.chmod(0o755)
        if shutil.which("curl") is None:
            (programs / "curl").write_text(_CURL)
            (programs / "curl").chmod(0o755)
        path = ":".join(map(str, filter(None, [programs, fairgate, Path(sys.executable).parent, os.environ["PATH"]])))
        self._environment = {"HOME": str(home), "PATH": path, "PYTHONPATH": str(pages.ROOT), "LANG": "C.UTF-8"}
        self._environment["BROWSER"] = "true"  # the program of that name, which opens nothing
        self._home, self._here = (
            str(home),
            {"fairgate.example.org": "localhost"}
            | {f":{port}": f":{free}" for port, free in zip((8443, 9090), free_ports(2), strict=True)},
        )
        self._staying: dict[str, str] = {}

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.cluster:
            self.release.stop()
        for name in list(self._staying.values()):
            self._stop(name, is_checked=kind is None)

    def follow(self, page: Path, *, until: str = "") -> list[str]:
        """Run the commands of the page, on request up to a heading, and give them; GOLDEN=write renews its outputs."""
        renewed, done = [], []
        for found in pages.script(page, until=until):
            if isinstance(found, pages.File):
                self.write(found.path, found.text)
            elif found.command not in EXCLUDED_COMMANDS:
                printed = self.do(found)
                done.append(found.command)
                if printed is not None:
                    renewed.append((found, printed))
        for step, printed in reversed(renewed):
            text = page.read_text()
            page.write_text(f"{text[: step.start]}{printed}{text[step.end :]}")
        return done

    def write(self, path: str, text: str) -> None:
        """Make a file."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self._to_here(text))

    def do(self, step: pages.Step) -> str | None:
        """Run a command; gives what it printed where the page is to be renewed by that."""
        if step.command.startswith("export "):
            name, _, value = step.command.removeprefix("export ").partition("=")
            self._environment[name] = self._run(f"echo {value}").stdout.strip()
            return None
        if _STAYS.match(step.command):
            return self._stay(step)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            done = self._run_as_reader(step.command)
            printed = self._from_here(done.stdout)
            if not step.shown and _went_well(step.command, done):
                return None
            if step.shown and is_alike(step.shown, printed):
                return None
            if not _LOOKS.match(step.command) or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if os.environ.get("GOLDEN") == "write" and step.shown:
            return printed
        raise AssertionError(
            f"$ {step.command}\nended with {done.returncode} and printed\n{printed}\nnot\n{step.shown}"
        )

    def _run_as_reader(self, command: str) -> "subprocess.CompletedProcess[str]":
        if _DEPLOYS.match(command):
            if command.startswith("helm uninstall"):  # which does not end while a server runs outside of the cluster
                self._stop_others()
            return self._run_with_hooks(command)
        return self._run_and_stop_others(command) if command == _WAITS else self._run(command)

    def _run_and_stop_others(self, command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command that waits until the reader has stopped what runs in the other terminals."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            running = pool.submit(self._run, command)
            while not running.done() and any(map(self.cluster.api.exists, _REGISTERED)):
                time.sleep(0.1)
            self._stop_others()
            return running.result()

    def _stop_others(self) -> None:
        """Stop what runs in the other terminals."""
        while self._staying:
            self._stop(self._staying.popitem()[1])

    def _run_with_hooks(self, command: str) -> "subprocess.CompletedProcess[str]":
        """Run helm, the pods that it waits for, and what it deployed."""
        done = self.release.run_beside(lambda: self._run(command))
        if done.returncode == 0:
            self.release.settle()
        return done

    def _run(self, command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", self._to_here(command)],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def _stay(self, step: pages.Step) -> str | None:
        """Start a command that does not end, and wait until it has printed something, or what the page shows."""
        assert self.cluster is not None, f"{step.command} needs a cluster's supervisor"
        listen = "".join(re.findall(r"--listen \S*:(\d+)", step.command))
        if listen in self._staying:  # the reader stopped that one to try this one
            self._stop(self._staying.pop(listen))
        name = f"docs-{time.monotonic_ns()}"
        self.cluster.processes.start(
            name, ["bash", "-c", f"exec {self._to_here(step.command)}"], env=self._environment, cwd=self.folder
        )
        self._staying[listen or name] = name
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (printed := self._said(name)) or (step.shown and not is_alike(step.shown, printed)):
            self.cluster.processes.check_running(name)
            if time.monotonic() > deadline:
                if os.environ.get("GOLDEN") == "write" and step.shown:
                    return printed
                raise AssertionError(f"$ {step.command}\nprinted\n{printed}\nnot\n{step.shown}")
            time.sleep(0.1)
        return None

    def _stop(self, name: str, *, is_checked: bool = True) -> None:
        """Press Ctrl-C until it has ended: a server drains for a quarter of a minute, unless it gets a second one."""
        processes = self.cluster.processes
        if is_checked:
            processes.check_running(name)
        deadline = time.monotonic() + STOP_SECONDS
        while processes.is_running(name):
            assert time.monotonic() < deadline, f"{name} goes on after Ctrl-C"
            with suppress(ComponentError):  # it has just ended
                processes.send_signal(name, signal.SIGINT)
            time.sleep(0.2)

    def _said(self, name: str) -> str:
        log = self.cluster.processes.log_path(name)
        return self._from_here(log.read_text()) if log.exists() else ""

    def _to_here(self, text: str) -> str:
        for there, here in self._here.items():
            text = text.replace(there, here)
        return text

    def _from_here(self, text: str) -> str:
        for there, here in self._here.items():
            text = text.replace(here, there)
        return text.replace(self._home, "~")


def _went_well(command: str, done: "subprocess.CompletedProcess[str]") -> bool:
    says_no = done.returncode == 1 and _MAY_SAY_NO.search(command) and "Traceback" not in done.stdout
    return done.returncode == 0 or bool(says_no)
