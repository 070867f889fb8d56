"""Every format of the same review, compared with golden/; `GOLDEN=write pytest` rewrites those files."""

import json
import os
from pathlib import Path
from typing import Annotated, Literal
from xml.etree import ElementTree as ET

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from tests.cli.review.sample import write
from webhook import __version__
from webhook.cli.main import main
from webhook.cli.review.formats.formats import SCHEMA, to_sarif
from webhook.cli.review.results import Finding, Level
from webhook.cli.review.run import ReviewReport
from webhook.core.model.reasons import Code
from webhook.policy.watch import load

GOLDEN = Path(__file__).parent / "golden"
FORMATS = ("table", "json", "github", "sarif", "junit", "markdown")


@pytest.fixture
def review(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, ["review", "--policy", "policy.yaml", *words, "k8s"])


def timeless(text):
    """Leave out what changes with every release, every field of a policy and every new reason code."""
    text = text.replace(load(Path("policy.yaml")).hash, "HASH").replace(__version__, "VERSION")
    if SCHEMA not in text:
        return text
    log = json.loads(text)
    [run] = log["runs"]
    del run["tool"]["driver"]["rules"]
    for result in run["results"]:
        del result["ruleIndex"]
    return json.dumps(log, indent=2) + "\n"


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_matches_its_golden_file(review, form):
    result = review("-o", form)
    assert (result.exit_code, result.stderr) == (1, "")
    kept, printed = GOLDEN / form, timeless(result.stdout)
    if os.environ.get("GOLDEN") == "write":
        kept.write_text(printed)
    assert printed == kept.read_text()


def test_json_and_yaml_agree_and_match_the_schema(review):
    printed = review("-o", "json").stdout
    assert yaml.safe_load(review("-o", "yaml").stdout) == json.loads(printed)
    report = msgspec.json.decode(printed, type=ReviewReport)
    assert [(workload.source, workload.line) for workload in report.workloads] == [
        ("k8s/50%,train.yaml", 2),
        ("k8s/others.yml", 1),
        ("k8s/others.yml", 10),
        ("k8s/others.yml", 12),
    ]


class Text(msgspec.Struct, forbid_unknown_fields=True):
    """SARIF's `message`, as far as it is used."""

    text: Annotated[str, msgspec.Meta(min_length=1)]


class Help(Text, forbid_unknown_fields=True):
    """SARIF's `multiformatMessageString`."""

    markdown: Annotated[str, msgspec.Meta(min_length=1)]


class Rule(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """SARIF's `reportingDescriptor`."""

    id: str
    name: str
    short_description: Text
    full_description: Text
    help: Help
    help_uri: Annotated[str, msgspec.Meta(pattern=r"^https://\S+$")] | None = None


class Driver(msgspec.Struct, forbid_unknown_fields=True):
    """SARIF's `toolComponent`."""

    name: str
    version: str
    rules: list[Rule]


class Tool(msgspec.Struct, forbid_unknown_fields=True):
    """SARIF's `tool`."""

    driver: Driver


class Artifact(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """SARIF's `artifactLocation`: a URI reference has no characters beyond these."""

    uri: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9/:%._~!$&'()*+,;=@-]+$")]
    uri_base_id: str | None = None
    description: Text | None = None


class Region(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """SARIF's `region`."""

    start_line: Annotated[int, msgspec.Meta(ge=1)]


class Physical(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """SARIF's `physicalLocation`."""

    artifact_location: Artifact
    region: Region


class Location(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """SARIF's `location`."""

    physical_location: Physical


class Result(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """SARIF's `result`."""

    rule_id: str
    rule_index: int
    level: Literal["none", "note", "warning", "error"]
    message: Text
    locations: list[Location]


class Base(msgspec.Struct, forbid_unknown_fields=True):
    """An `artifactLocation` that others are relative to."""

    description: Text


class Run(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """SARIF's `run`."""

    tool: Tool
    column_kind: Literal["utf16CodeUnits", "unicodeCodePoints"]
    original_uri_base_ids: dict[str, Base]
    results: list[Result]


class Log(msgspec.Struct, forbid_unknown_fields=True):
    """SARIF 2.1.0's log file, closed as its schema is."""

    schema_: Literal["https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"] = (
        msgspec.field(name="$schema")
    )
    version: Literal["2.1.0"]
    runs: Annotated[list[Run], msgspec.Meta(min_length=1)]


def sarif(printed):
    [run] = msgspec.json.decode(printed, type=Log).runs
    return run


def test_the_sarif_log_has_what_the_standard_requires(review):
    run = sarif(review("-o", "sarif").stdout)
    rules = [rule.id for rule in run.tool.driver.rules]
    for result in run.results:
        assert rules[result.rule_index] == result.rule_id
        for location in result.locations:
            assert location.physical_location.artifact_location.uri_base_id in run.original_uri_base_ids


def test_every_reason_code_is_a_rule_with_a_remedy(review):
    rules = {
        rule.id: rule
        for rule in sarif(review("-o", "sarif", "--docs-url", "https://git.example.org/f/").stdout).tool.driver.rules
    }
    assert rules.keys() == {*Code, "Note"}
    rule = rules["TeamLimitExceeded"]
    assert rule.short_description.text == "Team limit exceeded"
    assert rule.full_description.text == "The pod would take its team over gpus.limit."
    assert rule.help.text.startswith("The pod would take its team over gpus.limit.\n\nWhat to do: Wait until a holder")
    assert "`gpus.limit`" in rule.help.markdown
    assert rule.help_uri == "https://git.example.org/f/docs/reference/codes.md"
    assert not any("](" in rule.help.markdown for rule in rules.values()), (
        "relative links of that page do not work here"
    )


def test_without_an_address_of_the_docs_rules_have_no_link_and_their_help(review):
    for rule in sarif(review("-o", "sarif").stdout).tool.driver.rules:
        assert rule.help_uri is None
        assert "**What to do:**" in rule.help.markdown


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("k8s/50%,train.yaml", {"uri": "k8s/50%25%2Ctrain.yaml", "uriBaseId": "%SRCROOT%"}),
        ("./a b.yaml", {"uri": "a%20b.yaml", "uriBaseId": "%SRCROOT%"}),
        ("a:b.yaml", {"uri": "a%3Ab.yaml", "uriBaseId": "%SRCROOT%"}),
        ("/tmp/ä b.yaml", {"uri": "file:///tmp/%C3%A4%20b.yaml"}),
        ("<stdin>", {"uri": "stdin", "description": {"text": "standard input"}}),
    ],
)
def test_files_are_named_by_uris(source, want):
    finding = Finding(Level.ERROR, source, 1, "NoGpu", "Pod p", "", "why")
    [result] = json.loads(to_sarif([finding], docs_url="https://d"))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == want


def test_a_file_above_the_folder_has_a_file_uri(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [result] = json.loads(to_sarif([Finding(Level.ERROR, "../x.yaml", 1, "NoGpu", "", "", "w")], docs_url=""))["runs"][
        0
    ]["results"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": (tmp_path.parent / "x.yaml").as_uri()}


def test_the_junit_report_adds_up(review):
    root = ET.fromstring(review("-o", "junit").stdout)
    for key, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        assert int(root.get(key)) == len(root.findall(f".//{tag}")) == sum(int(suite.get(key)) for suite in root)


def test_the_patch_shows_what_would_be_written(review):
    printed = review("-o", "markdown", "--patch").stdout
    assert "+    fairgate.dev/tier: guaranteed" in printed
    assert printed.count("````diff") == 3


def test_several_outputs_go_to_their_files(review):
    result = review("-o", "github", "-o", "junit=out.xml", "-o", "sarif=out.sarif")
    assert result.stdout == (GOLDEN / "github").read_text()
    assert timeless(Path("out.xml").read_text()) == (GOLDEN / "junit").read_text()
    assert timeless(Path("out.sarif").read_text()) == (GOLDEN / "sarif").read_text()
