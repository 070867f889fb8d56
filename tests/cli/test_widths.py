"""Every command with tables on terminals of 80 and 120 columns, and in a pipe."""

import json
import re

import pytest
from click.testing import CliRunner

from tests.addons.history.usage.test_usage import RANGE, history
from tests.cli import sample_world
from tests.cli.doctor.test_written import broken
from tests.cli.queue.test_queue import POLICY as QUEUEING
from tests.cli.queue.test_queue import waiting_world
from tests.cli.terminals import on_a_terminal
from webhook.cli.doctor.run import to_table as doctor_table
from webhook.cli.main import main
from webhook.cli.options import UNBOUNDED

LOG = {
    "event": "decision",
    "operation": "CREATE",
    "phase": "validate",
    "outcome": "deny",
    "code": "TeamLimitExceeded",
    "namespace": "vision-research",
    "owner": "Job/a-training-with-a-long-name",
    "team": "vision",
    "gpus": 8,
    "message": "exceeded quota: team vision: requested 8, limit 24, used about 16.43",
    "time": "2026-11-26T06:00:00Z",
}


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """The commands with their words; all of them read files."""
    folder = tmp_path_factory.mktemp("widths")
    sample = sample_world.write(folder)
    (folder / "line").mkdir()
    line = sample_world.write(folder / "line", waiting_world())
    (folder / "line" / "policy.yaml").write_text(QUEUEING)
    (folder / "nodes.csv").write_text("name,gpus,model,count\nnode,8,NVIDIA-H100-80GB-HBM3,8\n")
    (folder / "server.log").write_text(
        "".join(json.dumps(LOG | {"owner": f"Job/a-long-name-{n}"}) + "\n" for n in range(3))
    )
    smaller = sample_world.POLICY.replace("gpus: {guaranteed: 9, limit: 20}", "gpus: {guaranteed: 3, limit: 9}")
    assert smaller != sample_world.POLICY
    (folder / "smaller.yaml").write_text(smaller)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a-training-with-a-name", "namespace": "vision"},
    }
    job["spec"] = {"parallelism": 3, "template": {"metadata": {}, "spec": sample_world.pod("p", gpus=8)["spec"]}}
    (folder / "job.json").write_text(json.dumps(job))
    world = sample[2:]
    load = ("--load", "0.7", "--days", "0.5", "--rounds", "2")
    return {
        "status": ("status", *sample),
        "status -o wide": ("status", *sample, "-o", "wide"),
        "queue": ("queue", *line),
        "explain": ("explain", *sample, "pod/next", "-n", "nlp"),
        "explain a job": ("explain", *sample, folder / "job.json"),
        "review": ("review", *sample, folder / "job.json"),
        "policy diff": ("policy", "diff", folder / "policy.yaml", folder / "smaller.yaml", *world),
        "simulate": ("simulate", "--world", folder / "nodes.csv", "--policy", folder / "policy.yaml", *load),
        "report": ("report", folder / "server.log"),
        "usage": ("usage", "--history", history(folder / "history.db"), *RANGE),
    }


UNDER_WAY = ("Reading", "Simulating", "Evaluating")
NAMES = (
    "status",
    "status -o wide",
    "queue",
    "explain",
    "explain a job",
    "review",
    "policy diff",
    "simulate",
    "report",
    "usage",
)


@pytest.fixture(scope="module")
def piped(commands):
    """What each command prints into a pipe."""
    found = {}
    for name, words in commands.items():
        done = CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)
        assert done.exit_code in (0, 1), done.output
        found[name] = done.stdout
    return found


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", NAMES)
def test_no_word_is_broken_and_no_line_is_wider_than_the_terminal(commands, piped, name, columns):
    shown = on_a_terminal(*commands[name], columns=columns)
    lines = [line for line in shown.text.splitlines() if not any(each in line for each in UNDER_WAY)]
    assert [line for line in lines if len(line) > columns] == []
    printed, _, note = "\n".join(lines).partition("no room at")
    ages = re.compile(r"[0-9]+[smhd]")  # that of a world file grows
    assert [word for word in printed.split() if word not in piped[name].split() and not ages.fullmatch(word)] == []
    assert not note or " ".join(note.split()).endswith("; a pipe shows all")


@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_gets_no_control_sequence_and_every_column(piped, name):
    assert "\x1b" not in piped[name]
    assert "no room at" not in piped[name]


HEAD = {
    "status": "team guaranteed limit used preemptible beyond share waiting who holds",
    "queue": "place in team pod team user GPUs waits waits for held by earlier waits",
    "report": "outcome code team namespace who times gpus first last",
}


@pytest.mark.parametrize("name", HEAD)
def test_the_columns_of_a_pipe(piped, name):
    assert " ".join(piped[name].splitlines()[0].split()) == HEAD[name]


@pytest.mark.parametrize("columns", [80, 120])
def test_what_doctor_finds_breaks_between_words(columns):
    """Doctor needs a cluster; this is its table of the findings that its golden file has."""
    text, whole = (doctor_table(broken(), width=width, is_colored=False) for width in (columns, UNBOUNDED))
    assert max(map(len, text.splitlines())) <= columns
    assert text.split() == whole.split()
