"""`fairgate policy`: what it prints and how it ends."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from webhook.cli.main import main
from webhook.policy.jsonschema import DIALECT

HEADER = "apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n"


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(main, ["policy", *arguments])


def test_good_policy_is_summed_up(run, tmp_path):
    teams = "teams: [{name: b, namespaces: [b]}, {name: a, namespaces: [a]}]\npools: [{name: p}]"
    (tmp_path / "a.yaml").write_text(HEADER + teams)
    result = run("check", str(tmp_path))
    assert result.exit_code == 0
    head, *rest, last = result.stdout.splitlines()
    assert (head, rest) == (f"{tmp_path}: good", ["  teams  a, b", "  pools  p"])
    assert last.startswith("  hash   ")


def test_problems_go_to_stdout_line_by_line_and_their_count_to_stderr(run, tmp_path):
    (tmp_path / "a.yaml").write_text(HEADER + "teams: [{name: a}]\nplacement: {mode: x}")
    result = run("check", str(tmp_path))
    assert result.exit_code == 1
    assert [line.split(": ")[:2] for line in result.stdout.splitlines()] == [
        [f"{tmp_path}/a.yaml:3", "teams[0].namespaces"],
        [f"{tmp_path}/a.yaml:4", "placement.mode"],
    ]
    assert result.stderr == f"2 problems in {tmp_path}\n"


def test_folder_that_cannot_be_read_ends_with_2(run, tmp_path):
    result = run("check", str(tmp_path / "nowhere"))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"cannot read {tmp_path}/nowhere: No such file or directory\n"


def test_empty_folder_is_a_problem(run, tmp_path):
    result = run("check", str(tmp_path))
    assert (result.exit_code, result.stdout) == (
        1,
        f"{tmp_path}: no policy files: expected at least one *.yaml or *.yml here\n",
    )


def test_schema_is_what_is_committed(run):
    result = run("schema")
    committed = (Path(__file__).parents[2] / "policies" / "schema.json").read_text()
    assert (result.exit_code, result.stdout) == (0, committed)
    assert json.loads(committed)["$schema"] == DIALECT


@pytest.mark.parametrize("command", ["check", "schema"])
def test_help_shows_examples(run, command):
    assert f"fairgate policy {command}" in run(command, "--help").stdout
