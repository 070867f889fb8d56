"""The documentation is true: links, command lines, tables, samples and printed output, against the code."""

import os
import re
import subprocess
import sys

import click
import pytest
import yaml

from tests.docs import pages
from webhook.cli.main import main
from webhook.cli.serve import serve
from webhook.core.tier import Tier
from webhook.kube.events import EventReason
from webhook.kube.workloads.table import BUILT_IN
from webhook.observe.leader import Candidacy
from webhook.observe.ledger import Standing
from webhook.observe.metrics import Authorities, Charged, Metrics, Phase, Watched
from webhook.observe.reclaim import ReclaimMetrics
from webhook.policy.load import load
from webhook.server.answer import Record
from webhook.server.handlers import _line

OPERATIONS = pages.ROOT / "docs" / "operations.md"
MAKEFILE = (pages.ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, flags=re.MULTILINE))
every_page = pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)


def subcommand(words):
    """The command that these words name, and the words after its name."""
    command, rest = main, words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(click.Context(command), rest[0])
        assert found is not None, f"no such command: {' '.join(words)}"
        command, rest = found, rest[1:]
    return command, rest


def check_make(words):
    for word in words[1:]:
        assert "=" in word or word in TARGETS, f"no such target: {' '.join(words)}"


@every_page
def test_links_lead_somewhere(page):
    for link in pages.links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in pages.anchors(target), link


@every_page
def test_command_lines_are_taken_as_they_stand(page):
    for words in pages.commands(page):
        if words[0] == "make":
            check_make(words)
            continue
        command, rest = subcommand(words)
        if "--help" in rest:
            continue
        given, left, _ = command.make_parser(click.Context(command)).parse_args(rest)
        assert not left, f"too many words: {' '.join(words)}"
        missing = [param.name for param in command.params if param.required and given.get(param.name) is None]
        assert not missing, f"{' '.join(words)} lacks {missing}"


@every_page
def test_commands_and_flags_in_the_text_exist(page):
    for words in pages.mentions(page):
        if words[0] == "make":
            check_make(words)
            continue
        command, rest = subcommand(words)
        known = {option for param in command.params for option in param.opts} | {"--help"}
        assert {word for word in rest if word.startswith("-")} <= known, " ".join(words)


def test_command_lines_are_found():
    assert {words[1] for page in pages.PAGES for words in pages.commands(page)} >= {"run", "test", "serve", "manifests"}


@every_page
def test_policies_in_samples_load(page, tmp_path):
    for number, block in enumerate(pages.blocks(page)):
        if block.language == "yaml" and "kind: Policy" in block.text:
            file = tmp_path / f"{number}.yaml"
            file.write_text(block.text)
            assert load(file).teams


@every_page
def test_other_samples_are_yaml(page):
    for block in pages.blocks(page):
        if block.language in ("yaml", "json"):
            assert all(yaml.safe_load_all(block.text))


def test_the_readme_tells_the_hash_of_its_policy(tmp_path):
    blocks = pages.blocks(pages.ROOT / "README.md")
    first = next(block.text for block in blocks if block.language == "yaml" and "teams:" in block.text)
    (tmp_path / "teams.yaml").write_text(first)
    told = next(block.text for block in blocks if "fairgate policy check policy" in block.text)
    assert f"hash   {load(tmp_path).hash}\n" in told


def test_the_readmes_policy_has_thirty_lines():
    longest = max(b.text.count("\n") for b in pages.blocks(pages.ROOT / "README.md") if "kind: Policy" in b.text)
    assert 25 <= longest <= 35


def test_the_readme_shows_what_make_run_prints(tmp_path):
    want = next(b.text for b in pages.blocks(pages.ROOT / "README.md") if b.text.startswith("Fairgate serves at"))
    tryout = [sys.executable, "-m", "webhook", "tryout", "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(pages.ROOT)}
    lines = []
    with subprocess.Popen(
        tryout, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        for line in running.stdout:
            lines.append(line)
            if line.startswith("Serving;"):
                break
        running.terminate()
    printed = "".join(lines).strip().replace(f"{pages.ROOT}/", "")
    assert re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8443", printed) == want.strip()


def test_the_flags_of_serve_are_all_in_the_table():
    want = []
    for option in serve.params:
        metavar = "|".join(option.type.choices) if isinstance(option.type, click.Choice) else option.metavar
        plain = option.default if isinstance(option.default, str | float) else "none"
        want.append((f"{option.opts[0]} {metavar}", "required" if option.required else str(plain)))
    assert [(flag, default) for flag, default, _ in pages.table(OPERATIONS, first="flag")] == want


def exposed():
    """Name, type and labels of every metric of a process that has seen one of each thing."""
    metrics = Metrics()
    metrics.decision(Phase.MUTATE, outcome="admit", code="Borrows", seconds=0.1)
    metrics.would("shadow", outcome="deny", code="Borrows", team="a")
    metrics.refused(404)
    metrics.policy_reload(is_success=True)
    metrics.watch_world_age(lambda: 1.0)
    metrics.watch_feed(lambda: [Watched("nodes", 1, 0, 0)])
    metrics.watch_certificate(lambda: 1.0)
    metrics.watch_authorities(lambda: Authorities(1.0, 1, is_published=True))
    metrics.certificate_change("renewed")
    metrics.watch_leader(lambda: Candidacy(True, 1, {("a", Tier.GUARANTEED): 1}, {"written": 1}))
    metrics.watch_charges(lambda: [Charged("a", Tier.GUARANTEED, 1)])
    counts = metrics.watch_ledger(lambda: [Standing("a", 1, 0)])
    counts.wrote("written", charges=1, seconds=0.1)
    counts.bypass("a")
    text = metrics.expose().body.decode()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, flags=re.MULTILINE):
        if name.endswith("_created"):
            continue  # told of below the table
        labels = set(re.findall(r'(\w+)="', " ".join(re.findall(rf"^{name}\w*({{.*}})", text, flags=re.MULTILINE))))
        yield name, kind, frozenset(labels - {"le"})


def test_the_table_of_metrics_lists_exactly_what_is_exposed():
    rows = pages.table(OPERATIONS, first="metric")
    told = [(name, kind, frozenset(re.findall(r"\w+", labels)) - {"none"}) for name, kind, labels, _ in rows]
    assert sorted(told) == sorted(exposed())


def test_the_table_of_events_lists_every_reason():
    assert [row[0] for row in pages.table(OPERATIONS, first="reason")] == list(EventReason)


def test_the_fields_of_a_decisions_line_are_all_explained():
    record = Record(**dict.fromkeys(Record._fields, ""))
    fields = ["time", "level", "event", *_line(Phase.MUTATE, record, 0.0)]
    told = [field for row in pages.table(OPERATIONS, first="field") for field in re.findall(r"\w+", row[0])]
    assert sorted(told) == sorted(fields)


def test_the_kinds_of_workloads_are_all_in_the_table():
    want = [
        [
            row.kind.kind,
            row.kind.group or "core",
            ", ".join(row.versions),
            "yes" if row.kind.is_gang else "no",
            row.told.replace("`", ""),
        ]
        for row in BUILT_IN
    ]
    assert pages.table(pages.ROOT / "docs" / "workloads.md", first="kind") == want


def test_pre_commit_runs_what_make_lint_runs():
    hooks = yaml.safe_load((pages.ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    recipe = MAKEFILE.partition("\nlint:")[2].partition("\n\n")[0].replace("$(BIN)", ".venv/bin")
    assert [hook["entry"] for hook in hooks] == [line.strip() for line in recipe.splitlines()[1:]]
    assert {hook["language"] for hook in hooks} == {"system"}


def test_every_decision_is_in_the_index():
    adr = pages.ROOT / "docs" / "adr"
    assert set(pages.links(adr / "README.md")) == {page.name for page in adr.glob("0*.md")}


def test_the_table_of_the_evictors_metrics_lists_exactly_what_is_exposed():
    metrics = ReclaimMetrics()
    metrics.watch(held_nodes=lambda: 0, largest_seat=lambda: 0, candidacy=lambda: Candidacy(True, 1, {}, {}))
    rows = pages.table(pages.ROOT / "docs" / "evictor.md", first="evictor metric")
    shown = re.findall(r"^# TYPE (fairgate_\w+) (\w+)$", metrics.expose().body.decode(), flags=re.MULTILINE)
    assert sorted((name, kind) for name, kind, _, _ in rows) == sorted(
        (name, kind) for name, kind in shown if not name.endswith("_created")
    )


def test_every_attempt_in_the_security_model_has_a_test_that_is_there():
    page = pages.ROOT / "docs" / "security.md"
    rows = [line for line in page.read_text().splitlines() if "](../tests/" in line]
    assert len(rows) >= 20
    for name, path in re.findall(r"\[`([^`]+)`\]\(\.\./(tests/[^)]+)\)", "\n".join(rows)):
        file = pages.ROOT / path
        assert file.name == name or re.search(rf"^(async )?def {name}\(", file.read_text(), flags=re.MULTILINE), name
