"""Names that others chose reach a terminal in every command: none of them breaks a table or moves the cursor."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.cli import sample_world
from tests.cli.terminals import on_a_terminal
from webhook.cli.main import main

EVIL = "x\nteam-a  99  99\x1b[2J\x9b1m\u202e"
"""A line of its own, a sequence that clears the screen, an 8-bit one, and a mark that turns the text around."""

POLICY = {
    "apiVersion": "fairgate.dev/v1alpha1",
    "kind": "Policy",
    "teams": [{"name": "a", "namespaces": ["*"], "gpus": {"guaranteed": 1, "limit": 1}}],
    "defaults": {"userFrom": [{"podAnnotation": "owner"}]},
}


def pod(name, **metadata):
    resources = {"limits": {"nvidia.com/gpu": 1, f"example.com/gpu-{EVIL}": 0}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": EVIL, "annotations": {"owner": EVIL}, **metadata},
        "spec": {"containers": [{"name": EVIL, "image": "i", "resources": resources}]},
    }


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": EVIL, "controller": True}
WORLD = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{EVIL}", "labels": {"nvidia.com/gpu.product": EVIL}},
            "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "8", "memory": "8Gi", "pods": "8"}},
        },
        pod(f"held-{EVIL}", ownerReferences=[OWNER]) | {"status": {"phase": "Running"}},
        pod(f"bare-{EVIL}") | {"status": {"phase": "Running"}},
    ],
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": EVIL, "namespace": EVIL},
    "spec": {"parallelism": 2, "template": {"metadata": {}, "spec": pod("p")["spec"]}},
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(yaml.safe_dump(POLICY))
    Path("other.yaml").write_text(yaml.safe_dump(POLICY | {"teams": [POLICY["teams"][0] | {"name": "b"}]}))
    Path("world.json").write_text(json.dumps(WORLD))
    Path("m.json").write_text(json.dumps(JOB))
    Path("pod.json").write_text(json.dumps(pod(EVIL)))
    Path("broken.yaml").write_text(f"kind: Pod\napiVersion: v1\nmetadata: {{name: {json.dumps(EVIL)}}}\nspec: [{{")


AGAINST = ("--policy", "policy.yaml", "--world", "world.json")
COMMANDS = {
    "status": ("status", *AGAINST),
    "status wide": ("status", *AGAINST, "-o", "wide"),
    "review": ("review", *AGAINST, "m.json", "pod.json"),
    "review markdown": ("review", *AGAINST, "-o", "markdown", "m.json", "pod.json"),
    "review github": ("review", *AGAINST, "-o", "github", "m.json", "pod.json"),
    "review patch": ("review", "--policy", "policy.yaml", "--patch", "pod.json"),
    "review of invalid YAML": ("review", *AGAINST, "broken.yaml"),
    "explain a manifest": ("explain", *AGAINST, "pod.json"),
    "explain a workload": ("explain", *AGAINST, "m.json"),
    "explain a pod": ("explain", *AGAINST, f"pod/bare-{EVIL}", "-n", EVIL),
    "explain nothing": ("explain", *AGAINST, f"pod/no-{EVIL}", "-n", EVIL),
    "policy diff": ("policy", "diff", "policy.yaml", "other.yaml", "--world", "world.json"),
    "policy check": ("policy", "check", "policy.yaml", "--world", "world.json"),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_control_characters_in_names_are_escaped(words):
    done = CliRunner().invoke(main, list(words))
    assert done.exception is None or isinstance(done.exception, SystemExit)
    printed = done.stdout + done.stderr
    assert r"\x1b[2J" in printed or EVIL not in json.dumps(words)
    assert [line for line in printed.split("\n") if not line.isprintable()] == []
    assert not any(line.startswith("team-a  99") for line in printed.split("\n"))


@pytest.mark.parametrize("command", ["status", "review", "explain a manifest", "explain a pod"])
@pytest.mark.parametrize("layout", ["json", "yaml"])
def test_data_have_the_names_and_a_terminal_shows_them_as_they_are(command, layout):
    words = COMMANDS[command]
    done = CliRunner().invoke(main, [words[0], "-o", layout, *words[1:]])
    assert [line for line in done.stdout.split("\n") if not line.isprintable()] == []
    read = json.loads(done.stdout) if layout == "json" else yaml.safe_load(done.stdout)
    assert json.dumps(EVIL)[1:-1] in json.dumps(read)


def test_a_report_of_logs_keeps_its_columns():
    line = {"event": "decision", "operation": "CREATE", "phase": "validate", "outcome": "deny", "code": "UnknownTeam"}
    line |= {"namespace": EVIL, "name": EVIL, "owner": f"Job/{EVIL}", "team": EVIL, "message": EVIL, "time": "t"}
    done = CliRunner().invoke(main, ["report"], input=json.dumps(line))
    assert done.exit_code == 0
    assert all(each.isprintable() for each in done.stdout.split("\n"))
    assert len(done.stdout.split("\n")) == 7


@pytest.mark.parametrize(
    ("encoding", "want", "unwanted"), [("utf-8", "·", ""), ("ascii", ".", "·")], ids=["UTF-8", "ASCII"]
)
def test_a_terminal_gets_only_characters_that_it_can_show(tmp_path, encoding, want, unwanted):
    printed = on_a_terminal("status", *sample_world.write(tmp_path), PYTHONIOENCODING=encoding).text
    picture = next(line for line in printed.splitlines() if line.startswith("gpu-10"))
    assert want in picture
    assert not unwanted or unwanted not in printed
