"""How commands end where they cannot go on: full disks, closed pipes, Ctrl-C; and which of them may move a cursor."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import forks
from tests.cli import sample_world
from tests.cli.terminals import SECONDS, on_a_terminal
from tests.forks import ROOT
from webhook.addons.simulation.simulate import run
from webhook.cli.main import main

POLICY = sample_world.POLICY
NODES = "name,gpus,model,count\nnode,8,A100,4\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("outputs")
    sample_world.write(made)
    many = [sample_world.pod(f"p{number}", gpus=1) for number in range(500)]
    (made / "large.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": many}))
    (made / "nodes.csv").write_text(NODES)
    return made


AGAINST = ("--policy", "policy.yaml", "--world", "world.json")
LARGE = ("--policy", "policy.yaml", "--world", "large.json")
SIMULATION = ("simulate", "--world", "nodes.csv", "--policy", "policy.yaml", "--load", "0.9")
COMMANDS = {
    "help": ("--help",),
    "help of a command": ("status", "--help"),
    "version": ("--version",),
    "status": ("status", *AGAINST),
    "status as data": ("status", *AGAINST, "-o", "json"),
    "queue": ("queue", *AGAINST),
    "explain": ("explain", *AGAINST, "pod/next", "-n", "nlp"),
    "review": ("review", *AGAINST, "world.json"),
    "policy check": ("policy", "check", "policy.yaml"),
    "policy diff": ("policy", "diff", "policy.yaml", "policy.yaml", "--world", "world.json"),
    "policy schema": ("policy", "schema"),
    "world": ("world", *AGAINST),
    "simulate": (*SIMULATION, "--days", "0.1"),
    "page": ("page", *AGAINST, "--no-browser"),
    "manifests": ("manifests", "--policy", "policy.yaml", "--url", "https://127.0.0.1:1"),
}


def ended(folder, words, *, out, during=lambda _running: None):
    """The exit status of a command that writes to a file or device, and what it said."""
    err = folder / "err"
    running = forks.start("webhook", *words, out=out, err=err, folder=folder)
    during(running)
    return running.wait(timeout=SECONDS), err.read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_said_in_one_line_and_is_no_answer(folder, name):
    want = "fairgate: the output cannot be written: No space left on device\n"
    assert ended(folder, COMMANDS[name], out=Path("/dev/full")) == (2, want)


FILES = {
    "a report of simulate": (*SIMULATION, "--days", "0.1", "--report", "/dev/full"),
    "a review": ("review", *AGAINST, "world.json", "-o", "json=/dev/full"),
    "names": ("world", *AGAINST, "--pseudonyms", "--names", "/dev/full"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_on_a_full_disk_is_named(folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(run, "can_draw", lambda: False)
    done = CliRunner().invoke(main, FILES[name])
    assert done.exit_code == 2
    assert done.stderr == "fairgate: /dev/full: cannot be written: No space left on device\n"


PIPED = {
    "world": ("world", *LARGE),
    "status as data": ("status", *LARGE, "-o", "json"),
    "help": ("--help",),
}


@pytest.mark.parametrize("name", PIPED)
@pytest.mark.slow
def test_a_closed_pipe_ends_a_command_without_a_word(folder, name):
    ours, theirs = os.pipe()
    os.close(ours)
    command, environ = [sys.executable, "-m", "webhook", *PIPED[name]], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environ, stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (1 if name == "help" else 141, b"")


ENDLESS = ("--policy", "policy.yaml", "--world", "endless.json")
INTERRUPTED = {
    "status": ("status", *ENDLESS),
    "queue": ("queue", *ENDLESS),
    "explain": ("explain", *ENDLESS, "pod/next", "-n", "nlp"),
    "review": ("review", *ENDLESS, "world.json"),
    "policy check": ("policy", "check", "policy.yaml", "--world", "endless.json"),
    "policy diff": ("policy", "diff", "policy.yaml", "policy.yaml", "--world", "endless.json"),
    "world": ("world", *ENDLESS),
    "simulate": ("simulate", *ENDLESS, "--load", "0.9"),
    "report": ("report", "endless.json"),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupt_is_130_and_no_answer(folder, name):
    pipe = folder / "endless.json"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)

    def interrupt(running):
        with pipe.open("w"):  # opened once the command reads it
            running.send_signal(signal.SIGINT)
            running.wait(timeout=SECONDS)

    assert ended(folder, INTERRUPTED[name], out=Path(os.devnull), during=interrupt) == (130, "")


def test_a_watch_on_a_terminal_keeps_its_summary_and_ends_by_ctrl_c(tmp_path):
    nodes = [found for found in sample_world.objects() if found["kind"] == "Node"]
    options = sample_world.write(tmp_path, [nodes[0] | {"metadata": {"name": f"gpu-{n}"}} for n in range(40)])
    shown = on_a_terminal("status", *options, "--watch", columns=80, rows=24, until=lambda text: "policy " in text)
    [screen] = shown.raw.split("\x1b[2J")[1:2]
    lines = screen.replace("\r", "").replace("\x1b[1;1H", "").rstrip("\n").splitlines()
    assert shown.status == 130
    assert len(lines) <= 24
    assert any(line.startswith("+") and line.endswith(" nodes") for line in lines)
    assert any("40 pods of 8" in line for line in lines)
    assert "Aborted" not in shown.text


COLORS = {
    "neither": ({}, False),
    "NO_COLOR": ({"NO_COLOR": "1"}, False),
    "FORCE_COLOR": ({"FORCE_COLOR": "1"}, True),
    "FORCE_COLOR=0": ({"FORCE_COLOR": "0"}, False),
    "both": ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
}


@pytest.mark.parametrize("name", COLORS)
def test_colors_in_a_pipe_are_for_those_who_ask_and_a_cursor_never_moves(folder, name, monkeypatch):
    for each in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(each, raising=False)
    environ, is_colored = COLORS[name]
    for key, value in environ.items():
        monkeypatch.setenv(key, value)
    for words in (("status", *AGAINST), (*SIMULATION, "--days", "0.1"), ("review", *AGAINST, "world.json")):
        _, said = ended(folder, words, out=folder / "out")
        printed = (folder / "out").read_text()
        assert ("\x1b[" in printed) == is_colored
        assert "\x1b" not in said
        assert not any(f"\x1b[{code}" in printed for code in ("?25", "2K", "1A", "2J", "H"))


@pytest.mark.parametrize(("term", "moves"), [("xterm", True), ("dumb", False)])
def test_a_terminal_that_cannot_move_its_cursor_shows_no_progress(folder, monkeypatch, term, moves):
    monkeypatch.chdir(folder)
    shown = on_a_terminal("status", *AGAINST, TERM=term, NO_COLOR="")
    assert ("\x1b[" in shown.raw) == moves
    assert shown.status == 0
