"""The pages about the command line: generated ones are fresh, printed reviews are what is printed, shells complete."""

import os
import re
import subprocess
import sys

import pytest
import yaml
from click.testing import CliRunner

from tests.docs import pages
from webhook.cli import reference
from webhook.cli.main import main
from webhook.cli.review.outputs import Format

HASH = re.compile(r"policy [0-9a-f]{12}")
CONTAINER = """      containers:
        - name: main
          resources:
            limits:
              nvidia.com/gpu: 8
"""
TRAIN = f"""apiVersion: batch/v1
kind: Job
metadata:
  name: resnet50
  namespace: vision
spec:
  parallelism: 3
  template:
    spec:
{CONTAINER}"""
SERVE = f"""apiVersion: apps/v1
kind: Deployment
metadata: {{name: serve, namespace: vision}}
spec:
  replicas: 4
  template:
    metadata: {{labels: {{app: serve}}}}
    spec:
{CONTAINER}"""
NOTEBOOK = """apiVersion: v1
kind: Pod
metadata: {name: notebook, namespace: nlp}
spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]}
"""
SHOWN = {
    "README.md": ("train.yaml", {"train.yaml": TRAIN}),
    "docs/ci.md": ("k8s/", {"k8s/notebook.yaml": NOTEBOOK, "k8s/serve.yaml": SERVE}),
}


def quickstart_policy():
    return next(b.text for b in pages.blocks(pages.ROOT / "README.md") if "kind: Policy" in b.text)


@pytest.mark.parametrize("name", reference.pages())
def test_the_page_is_what_the_code_makes(name):
    assert (pages.ROOT / "docs" / name).read_text() == reference.pages()[name], "make docs"


@pytest.mark.parametrize("page", SHOWN)
def test_the_page_shows_what_review_prints(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source, manifests = SHOWN[page]
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "teams.yaml").write_text(quickstart_policy())
    for name, text in manifests.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    printed = CliRunner().invoke(main, ["review", "--policy", "policy", source]).stdout
    asked = f"$ fairgate review --policy policy {source}\n"
    [shown] = [b.text.removeprefix(asked) for b in pages.blocks(pages.ROOT / page) if b.text.startswith(asked)]
    assert HASH.sub("policy", shown) == HASH.sub("policy", printed)


def test_every_format_is_explained():
    told = {name for row in pages.table(pages.ROOT / "docs" / "ci.md", first="format") for name in row[0].split(", ")}
    assert told == set(Format)


def test_the_inputs_of_the_action_are_those_of_the_page():
    action = yaml.safe_load((pages.ROOT / ".github" / "actions" / "review" / "action.yml").read_text())
    want = [
        (name, "required" if given.get("required") else given["default"] or "none", given["description"])
        for name, given in action["inputs"].items()
    ]
    assert [tuple(row) for row in pages.table(pages.ROOT / "docs" / "ci.md", first="input")] == want


def test_a_shell_completes_commands_options_and_formats():
    def completed(*words):
        environment = {
            "PYTHONPATH": str(pages.ROOT),
            "_FAIRGATE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("fairgate", *words)),
            "COMP_CWORD": str(len(words)),
        }
        command = [sys.executable, "-c", "from webhook.cli.main import main; main(prog_name='fairgate')"]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("rev") == ["review"]
    assert "--fail-on" in completed("review", "--f")
    assert completed("review", "-o", "j") == ["json", "junit"]
