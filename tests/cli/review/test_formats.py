"""Every format of the same review, against what is kept in golden/; `GOLDEN=write pytest` renews that."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from tests.cli.review.sample import write
from webhook import __version__
from webhook.cli.main import main
from webhook.cli.review.report import ReviewReport
from webhook.policy.load import load

GOLDEN = Path(__file__).parent / "golden"
FORMATS = ("table", "json", "github", "sarif", "junit", "markdown")


@pytest.fixture
def review(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, ["review", "--policy", "policy.yaml", *words, "k8s"])


def timeless(text):
    """Leave out what changes with every release and every field of a policy."""
    return text.replace(load(Path("policy.yaml")).hash, "HASH").replace(__version__, "VERSION")


@pytest.mark.parametrize("form", FORMATS)
def test_the_format_is_what_is_kept(review, form):
    result = review("-o", form)
    assert (result.exit_code, result.stderr) == (1, "")
    kept, told = GOLDEN / form, timeless(result.stdout)
    if os.environ.get("GOLDEN") == "write":
        kept.write_text(told)
    assert told == kept.read_text()


def test_json_and_yaml_say_the_same_in_the_shape_that_is_promised(review):
    told = review("-o", "json").stdout
    assert yaml.safe_load(review("-o", "yaml").stdout) == json.loads(told)
    report = msgspec.json.decode(told, type=ReviewReport)
    assert [(workload.source, workload.line) for workload in report.workloads] == [
        ("k8s/50%,train.yaml", 2),
        ("k8s/others.yml", 1),
        ("k8s/others.yml", 10),
        ("k8s/others.yml", 12),
    ]


def test_the_sarif_log_has_what_the_standard_requires(review):
    log = json.loads(review("-o", "sarif").stdout)
    assert log["version"] == "2.1.0"
    [run] = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        assert result["message"]["text"]
        [location] = result["locations"]
        place = location["physicalLocation"]
        assert not set(place["artifactLocation"]["uri"]) & set(' |<>"')
        assert place["region"]["startLine"] >= 1


def test_the_junit_report_adds_up(review):
    root = ET.fromstring(review("-o", "junit").stdout)
    for key, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        assert int(root.get(key)) == len(root.findall(f".//{tag}")) == sum(int(suite.get(key)) for suite in root)


def test_the_patch_shows_what_would_be_written(review):
    told = review("-o", "markdown", "--patch").stdout
    assert "+    fairgate.dev/tier: guaranteed" in told
    assert told.count("````diff") == 3


def test_several_outputs_go_to_their_files(review):
    result = review("-o", "github", "-o", "junit=out.xml", "-o", "sarif=out.sarif")
    assert result.stdout == (GOLDEN / "github").read_text()
    assert timeless(Path("out.xml").read_text()) == (GOLDEN / "junit").read_text()
    assert timeless(Path("out.sarif").read_text()) == (GOLDEN / "sarif").read_text()
