"""The GitHub Action and the pre-commit hook, run as they stand: what is parsed from their files is what is executed."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from tests.cli.review.sample import write
from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow

FOLDER = ROOT / ".github" / "actions" / "review"
ACTION = yaml.safe_load((FOLDER / "action.yml").read_text())
EXPRESSION = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")


class Runner:
    """Runs steps as GitHub's runner does: bash, inputs filled in, files for outputs and summary."""

    def __init__(self, folder, **inputs):
        self.folder = folder
        given = {name: declared.get("default", "") for name, declared in ACTION["inputs"].items()}
        self.inputs = given | {name.replace("_", "-"): value for name, value in inputs.items()}
        self.environment = os.environ | {
            "RUNNER_TEMP": str(folder),
            "GITHUB_ACTION_PATH": str(FOLDER),
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            # the dependencies are here already, and nothing is to be fetched
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads the variable as the value, not as the flag
            "PIP_NO_INDEX": "1",
        }

    def run(self, step):
        assert step["shell"] == "bash"
        values = {
            name: EXPRESSION.sub(lambda found: self.inputs[found[1]], text)
            for name, text in step.get("env", {}).items()
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder,
            env=self.environment | values,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def installed(tmp_path):
    """The first step as it stands would fetch the dependencies; here the command is that of the checkout."""
    command = tmp_path / "fairgate" / "bin" / "fairgate"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m webhook "$@"\n')
    command.chmod(0o755)
    write(tmp_path)
    return tmp_path


def test_refusals_become_annotations_a_summary_and_a_status(installed):
    runner = Runner(installed, policy="policy.yaml", paths="k8s\n\n", sarif="out.sarif")
    result = runner.run(ACTION["runs"]["steps"][1])
    assert (result.returncode, result.stderr) == (1, "")
    assert "refused                                Worker" in result.stdout
    assert "::error file=k8s/50%25%2Ctrain.yaml,line=15,title=TeamLimitExceeded::" in result.stdout
    assert (installed / "output").read_text() == "status=1\n"
    assert (installed / "summary").read_text().startswith("### Fairgate: some would be refused")
    assert (installed / "out.sarif").exists()


@pytest.mark.parametrize(("fail_on", "want"), [("", 0), ("preemptible warning", 1)])
def test_a_pull_request_that_is_admitted_passes_unless_it_borrows(installed, fail_on, want):
    train = installed / "k8s" / "50%,train.yaml"
    train.write_text(train.read_text().replace("replicas: 6", "replicas: 5"))
    runner = Runner(installed, policy="policy.yaml", paths=f"{train}\n", fail_on=fail_on)
    assert runner.run(ACTION["runs"]["steps"][1]).returncode == want


def test_a_path_that_looks_like_a_command_stays_a_path(installed):
    runner = Runner(installed, policy="policy.yaml", paths="$(touch gotcha)\n--help", namespace="`touch gotcha`")
    result = runner.run(ACTION["runs"]["steps"][1])
    assert result.returncode == 2
    assert "$(touch gotcha):1: error: cannot be read" in result.stdout
    assert not (installed / "gotcha").exists()


def test_nothing_of_a_pull_request_is_pasted_into_a_script():
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert {found for text in step.get("env", {}).values() for found in EXPRESSION.findall(text)} <= set(
            ACTION["inputs"]
        )


def test_the_action_installs_the_checkout_that_it_comes_from_where_its_review_looks_for_it(tmp_path):
    """Calls are recorded; the environment that it creates has a Python that records calls, too."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$*" >> "$RUNNER_TEMP/called"\n'
        'if [ "$2" = venv ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi\n'
    )
    python.chmod(0o755)
    runner = Runner(tmp_path)
    runner.environment["PATH"] = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    result = runner.run(ACTION["runs"]["steps"][0])
    assert (result.returncode, result.stderr) == (0, "")
    made, installed = (tmp_path / "called").read_text().splitlines()
    assert made == f"-m venv {tmp_path}/fairgate"
    assert installed.startswith("-m pip install ")
    assert Path(installed.split()[-1]).resolve() == ROOT
    assert '"$RUNNER_TEMP/fairgate/bin/fairgate" review' in ACTION["runs"]["steps"][1]["run"]


@pytest.mark.long
def test_the_action_installs_the_checkout_that_it_comes_from(tmp_path):
    result = Runner(tmp_path).run(ACTION["runs"]["steps"][0])
    assert result.returncode == 0, result.stderr
    output = subprocess.run(
        [tmp_path / "fairgate" / "bin" / "fairgate", "--version"],
        env=Runner(tmp_path).environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout.startswith("fairgate, version ")


def test_the_pre_commit_hook_takes_the_files_of_a_commit(tmp_path):
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["language"], hook["require_serial"]) == ("python", True)
    write(tmp_path)
    files = [name for name in ("k8s/50%,train.yaml", "k8s/others.yml", "README.md") if re.search(hook["files"], name)]
    name, *words = hook["entry"].split()
    assert name == "fairgate"
    command = [sys.executable, "-m", "webhook", *words, "--policy", "policy.yaml", *files]
    result = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "k8s/50%,train.yaml:15: error: " in result.stdout
