"""The command as a whole: suggestions for mistyped commands, and completion."""

import os
import shlex
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from tests.control_plane.build import binary_path
from tests.control_plane.versions import KUBERNETES
from tests.docs.pages import ROOT
from webhook import __version__
from webhook.cli import main as completion
from webhook.cli.main import main
from webhook.cli.policy import policy


@pytest.mark.parametrize(
    ("typed", "want"),
    [
        ("statsu", "Did you mean 'status'?"),
        ("polic check", "Did you mean 'policy'?"),
        ("policy chekc", "'check'"),
        ("check policies", "Did you mean 'policy check'?"),
        ("status --polcy x", "Did you mean '--policy'?"),
    ],
)
def test_a_mistyped_command_gets_suggestions(typed, want):
    result = CliRunner().invoke(main, shlex.split(typed))
    assert result.exit_code == 2
    assert want in result.output


def test_an_unknown_command_without_a_close_match_is_refused():
    output = CliRunner().invoke(main, ["xyzzy"]).output
    assert "No such command 'xyzzy'." in output
    assert "Did you mean" not in output


@pytest.mark.parametrize("command", policy.commands)
def test_a_policy_command_without_the_word_policy_is_suggested(command):
    assert f"Did you mean 'policy {command}" in CliRunner().invoke(main, [command, "x"]).output


@pytest.mark.parametrize(
    ("typed", "want", "directive"),
    [
        (["sta"], {"status"}, 4),
        (["policy", "d"], {"diff"}, 4),
        (["status", "-o", "j"], {"json"}, 4),
        (["status", "--wa"], {"--watch"}, 4),
        (["review", "--policy", ""], set(), 0),
    ],
)
def test_kubectl_gets_completions(typed, want, directive, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-fairgate", *typed])
    completion.kubectl_complete()
    *offered, last = capsys.readouterr().out.splitlines()
    assert {line.partition("\t")[0] for line in offered} == want
    assert last == f":{directive}"


def test_without_arguments_every_command_is_listed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-fairgate", ""])
    completion.kubectl_complete()
    offered = dict(line.split("\t") for line in capsys.readouterr().out.splitlines()[:-1])
    assert "explain" in offered
    assert offered["status"] == "Show who uses which GPUs, and what would fit now."


@pytest.mark.cluster
@pytest.mark.usefixtures("built_control_plane")
def test_kubectl_completes_its_plugin(tmp_path):
    for name, called in (
        ("kubectl-fairgate", "main:plugin"),
        ("kubectl_complete-fairgate", "main:kubectl_complete"),
    ):
        module, _, function = called.partition(":")
        script = tmp_path / name
        script.write_text(f"#!{sys.executable}\nfrom webhook.cli.{module} import {function}\n{function}()\n")
        script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    command = [binary_path(KUBERNETES, "kubectl"), "__complete", "fairgate", "policy", "c"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0].startswith("check\t")


def test_the_version_is_a_command_as_with_kubectl():
    assert CliRunner().invoke(main, ["version"]).output.endswith(f"version {__version__}\n")


def test_every_command_that_talks_to_a_cluster_takes_a_context(tmp_path, monkeypatch):
    def options(group):
        context = click.Context(group)
        for name in group.list_commands(context):
            each = group.get_command(context, name)
            if isinstance(each, click.Group):
                yield from options(each)
            else:
                yield name, {option for param in each.params for option in param.opts}

    found = dict(options(main))
    of_clusters = {name for name, those in found.items() if "--kubeconfig" in those}
    assert of_clusters == {name for name, those in found.items() if "--context" in those}
    assert of_clusters >= {"status", "review", "usage", "doctor", "uninstall", "serve", "evict", "diff"}
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    (tmp_path / "kubeconfig").write_text("{contexts: [], clusters: [], users: []}")
    done = CliRunner().invoke(main, ["status", "--context", "nowhere"])
    assert (done.exit_code, "nowhere" in done.stderr) == (2, True), done.output
