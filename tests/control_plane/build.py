"""Builds what is missing of the test control plane into the cache; `python -m tests.control_plane.build` by hand.

Every recipe is built in a staging folder under one lock and renamed into place, so that a build which was cut short
leaves nothing that looks finished, and two test runs do not build the same thing twice.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from tests.control_plane.assets import GOMOD, cache_root, find_binary, missing_binaries, recipe_folder
from tests.control_plane.progress import Progress, in_words, roughly
from tests.control_plane.toolchain import ToolchainError, find_go, go_environment
from tests.control_plane.versions import FOR_REST, FOR_TEST, FOR_TEST_OPERATORS, RECIPES, Program, Recipe, Upstream

PROGRESS_SECONDS = 20
LOCK_POLL_SECONDS = 0.2
LOG_TAIL_LINES = 25

Say = Callable[[str], None]


class BuildError(Exception):
    """A binary of the control plane could not be built; the text says why and what to do."""


class OutOfTimeError(Exception):
    """The time that a build was given is over."""


def say_on_stderr(line: str) -> None:
    """Show one line of progress at once."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201  this is a command that talks to people


def ensure(recipes: Iterable[Recipe], *, say: Say = say_on_stderr, root: Path | None = None) -> None:
    """Build what is missing; return at once if nothing is."""
    root = root or cache_root()
    if not any(missing_binaries(recipe, root=root) for recipe in recipes):
        return
    root.mkdir(parents=True, exist_ok=True)
    with _only_builder(root, say=say) as say_to_all:
        wanted = [recipe for recipe in recipes if missing_binaries(recipe, root=root)]  # another process may have built
        if wanted:
            _build_all(wanted, root=root, say=say_to_all)


def _build_all(recipes: Sequence[Recipe], *, root: Path, say: Say) -> None:
    progress = Progress(recipes, started=time.monotonic())
    names = ", ".join(f"{recipe.name} {recipe.version}" for recipe in recipes)
    say(f"building {names} into {root}: once, about {roughly(progress.remaining(time.monotonic()))} on two cores")
    try:
        go = find_go(root, say=say)
    except ToolchainError as error:
        raise BuildError(str(error)) from error
    for recipe in recipes:
        started = time.monotonic()
        _build(recipe, go=go, root=root, report=lambda: say(progress.describe(time.monotonic())))
        say(f"{recipe.name} {recipe.version}: ready after {in_words(time.monotonic() - started)}")
        progress.done(time.monotonic())


def binary_path(recipe: Recipe, binary: str) -> Path:
    """Return the path of a binary that was built or is an asset; a BuildError explains how to get a missing one."""
    if path := find_binary(recipe, binary):
        return path
    option = "" if recipe in FOR_TEST else " --rest" if recipe in FOR_REST else " --operators"
    raise BuildError(
        f"{binary} is not there: {recipe_folder(recipe) / binary} is missing"
        f" and $KUBEBUILDER_ASSETS is {os.environ.get('KUBEBUILDER_ASSETS') or 'not set'};"
        f" build it with: python -m tests.control_plane.build{option}"
    )


@contextlib.contextmanager
def _only_builder(root: Path, *, say: Say) -> Iterator[Say]:
    """Hold the lock. Its file has the build's output for waiting processes; the first line is the test run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    with (root / ".lock").open("a+") as lock:
        if not _taken(lock):
            _follow(lock, run=run, say=say)
        lock.truncate(0)

        def say_to_all(line: str) -> None:
            say(line)
            print(line, file=lock, flush=True)

        print(run, file=lock, flush=True)
        yield say_to_all


def _taken(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _follow(lock: TextIO, *, run: str, say: Say) -> None:
    """Wait for the lock and repeat its holder's output, unless a worker of the same test run shows it already."""
    said: list[str] = []
    while not _taken(lock):
        lock.seek(0)
        holder, *lines = lock.read().splitlines() or [run]
        if not run or holder != run:
            lines.insert(0, f"another build holds {lock.name}: waiting for it")
            for line in lines[len(said) if lines[: len(said)] == said else 0 :]:  # the next holder begins again
                say(line)
            said = lines
        time.sleep(LOCK_POLL_SECONDS)


def _build(recipe: Recipe, *, go: Path, root: Path, report: Callable[[], None]) -> None:
    staging = root / ".staging"
    shutil.rmtree(staging, ignore_errors=True)  # of a build that was killed: we hold the lock
    (staging / "bin").mkdir(parents=True)
    report()
    try:
        if recipe.upstream is None:
            missing = missing_binaries(recipe, root=root)
            programs = [program for program in recipe.programs if program.binary in missing]
            source = GOMOD / recipe.name
        else:
            programs = list(recipe.programs)
            source = _copy_upstream(recipe, recipe.upstream, go=go, staging=staging)
        _compile(recipe, programs, go=go, source=source, staging=staging, report=report)
        _move_into_place(recipe, source=source, staging=staging, folder=recipe_folder(recipe, root=root))
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def module_folder(recipe: Recipe, *, say: Say = say_on_stderr) -> Path:
    """The folder of a recipe's module in Go's module cache, downloaded if need be; it is read-only."""
    if recipe.upstream is None:
        raise BuildError(f"{recipe.name} is no module of its own")
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    try:
        go = find_go(root, say=say)
    except ToolchainError as error:
        raise BuildError(str(error)) from error
    return _download(recipe, recipe.upstream, go=go)


def _download(recipe: Recipe, upstream: Upstream, *, go: Path) -> Path:
    """Have Go download a module and check that it is the pinned one."""
    with tempfile.TemporaryDirectory() as outside:  # of any module, so that no other go.mod has an effect
        done = subprocess.run(
            [go, "mod", "download", "-json", f"{upstream.module}@v{recipe.version}"],
            cwd=outside,
            env=go_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise BuildError(f"{upstream.module} could not be downloaded:\n{done.stdout}{done.stderr}")
    facts = json.loads(done.stdout)
    if facts["Sum"] != upstream.checksum:
        raise BuildError(f"{upstream.module}: checksum {facts['Sum']}, pinned is {upstream.checksum}")
    return Path(facts["Dir"])


def _copy_upstream(recipe: Recipe, upstream: Upstream, *, go: Path, staging: Path) -> Path:
    """Copy the module out of Go's module cache, which is read-only, and make its edits."""
    source = staging / "source"
    shutil.copytree(_download(recipe, upstream, go=go), source, copy_function=shutil.copyfile)
    for folder in [source, *(path for path in source.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)
    for edit in upstream.edits:
        text = (source / edit.path).read_text()
        if text.count(edit.old) != 1:
            raise BuildError(f"{upstream.module}: {edit.path} does not hold exactly one {edit.old}")
        (source / edit.path).write_text(text.replace(edit.old, edit.new))
    return source


def _compile(
    recipe: Recipe, programs: Sequence[Program], *, go: Path, source: Path, staging: Path, report: Callable[[], None]
) -> None:
    """Compile and link all programs in one call, which shares the work."""
    # Go names a binary after its package, unless there is one package and one output file.
    output = f"{staging / 'bin'}{os.sep}" if len(programs) > 1 else staging / "bin" / programs[0].binary
    packages = [program.package for program in programs]
    tags = ["-tags", recipe.tags] if recipe.tags else []
    command = [go, "build", "-ldflags", recipe.ldflags, "-o", output, *tags, *packages]
    _run(command, cwd=source, log=staging / "log", report=report, name=f"{recipe.name} {recipe.version}")


def _run(command: Sequence[str | Path], *, cwd: Path, log: Path, report: Callable[[], None], name: str) -> None:
    """Run a command that takes minutes, and report the progress of the build from time to time."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env=go_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(PROGRESS_SECONDS)
                    break
                report()
        except BaseException:  # Ctrl-C: go must not continue in the background
            process.terminate()
            process.wait()
            raise
    if process.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        raise BuildError(f"{name} could not be built (go build ended with {process.returncode}):\n{tail}")


def _move_into_place(recipe: Recipe, *, source: Path, staging: Path, folder: Path) -> None:
    """Move the kept files first and the binaries last: if a binary exists, everything does."""
    folder.mkdir(parents=True, exist_ok=True)
    for kept in recipe.upstream.keep if recipe.upstream else ():
        shutil.rmtree(folder / kept, ignore_errors=True)
        os.replace(source / kept, folder / kept)
    for built in (staging / "bin").iterdir():
        os.replace(built, folder / built.name)


def give_way() -> None:
    """Give every other process precedence."""
    os.nice(19)


@contextlib.contextmanager
def at_most(minutes: float | None) -> Iterator[None]:
    """Raise an OutOfTimeError in the block after so many minutes, whatever it waits for; None is without a bound."""
    if minutes is None:
        yield
        return
    if minutes <= 0:
        raise OutOfTimeError

    def stop(*_: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, minutes * 60)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.control_plane.build", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to build: {', '.join(RECIPES)}")
    parser.add_argument(
        "--operators",
        action="store_true",
        help="without names: also operators, cert-manager, Prometheus and Alertmanager",
    )
    parser.add_argument("--rest", action="store_true", help="without names: also Helm, for `make test-rest`")
    parser.add_argument("--minutes", type=float, metavar="N", help="end after so many minutes, ready or not")
    parser.add_argument("--give-way", action="store_true", help="run with the lowest priority")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(RECIPES):
        parser.error(f"nothing is called {', '.join(sorted(unknown))}")
    if options.give_way:
        give_way()
    besides = [*(FOR_REST if options.rest else ()), *(FOR_TEST_OPERATORS if options.operators else ())]
    recipes = [RECIPES[name] for name in options.names] or [*dict.fromkeys((*FOR_TEST, *besides))]
    try:
        with at_most(options.minutes):
            ensure(recipes)
    except OutOfTimeError:
        if names := [recipe.name for recipe in recipes if missing_binaries(recipe)]:
            say_on_stderr(f"not built within {options.minutes:g} min: {', '.join(names)}")
        return 0
    except BuildError as error:
        say_on_stderr(f"error: {error}")
        return 1
    for recipe in recipes:
        for program in recipe.programs:
            print(binary_path(recipe, program.binary))  # noqa: T201  the answer of this command
    return 0


if __name__ == "__main__":
    sys.exit(main())
