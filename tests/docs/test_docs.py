"""The documentation is true: links, command lines, tables, samples and printed output, against the code."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from tests.docs import page_tables, pages
from tests.docs.excluded import EXCLUDED_COMMANDS, PROGRAMS
from tests.popen import killed_on_failure
from webhook.cli.main import main
from webhook.core.model.reasons import Code, Reason
from webhook.kube.objects.events import EventReason
from webhook.observe.logs import Phase
from webhook.policy.watch import load
from webhook.server.http.handlers import decision_line
from webhook.server.review.verdicts import Record

SIGNALS = pages.ROOT / "docs" / "reference" / "signals.md"
MAKEFILE = (pages.ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, flags=re.MULTILINE))


def pages_with(find):
    """Parameters for the pages on which a function finds something."""
    found = [page for page in pages.PAGES if list(find(page))]
    assert found
    return pytest.mark.parametrize("page", found, ids=pages.name)


def rows(page):
    """Consecutive lines that look like rows of a table."""
    return re.findall(r"(?:^\|.*\|\n)+", pages.prose(page), flags=re.MULTILINE)


def comparisons(page):
    """The words after `policy diff` in commands."""
    commands = [found.command for found in pages.script(page) if isinstance(found, pages.Step)]
    return [shlex.split(each.partition("policy diff ")[2]) for each in commands if "policy diff" in each]


def policies(page):
    return [block.text for block in pages.blocks(page) if block.language == "yaml" and "kind: Policy" in block.text]


def data(page):
    return [block.text for block in pages.blocks(page) if block.language in ("yaml", "json")]


def subcommand(words):
    """The command that these words name, and the words after its name."""
    command, rest = main, words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(click.Context(command), rest[0])
        assert found is not None, f"no such command: {' '.join(words)}"
        command, rest = found, rest[1:]
    return command, rest


def check_make(words):
    for word in words[3:] if words[1] == "-C" else words[1:]:
        assert "=" in word or word in TARGETS, f"no such target: {' '.join(words)}"


@pages_with(pages.links)
def test_links_have_targets(page):
    assert "]()" not in page.read_text()
    for link in pages.links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in pages.anchors(target), link


@pytest.mark.parametrize("command", EXCLUDED_COMMANDS)
def test_an_excluded_command_has_a_valid_syntax(command):
    words = shlex.split(command)
    if words[0] == "make":
        check_make(words)
    elif words[0] == "fairgate":
        called, rest = subcommand(words)
        given, left, _ = called.make_parser(click.Context(called)).parse_args(rest)
        assert not left
        assert not [param.name for param in called.params if param.required and given.get(param.name) is None]
    else:
        assert words[0] in PROGRAMS


@pages_with(pages.mentions)
def test_commands_and_flags_in_the_text_exist(page):
    for words in pages.mentions(page):
        if words[0] == "make":
            check_make(words)
            continue
        command, rest = subcommand(words)
        known = {option for param in command.params for option in param.opts} | {"--help"}
        assert {word for word in rest if word.startswith("-")} <= known, " ".join(words)


@pages_with(rows)
def test_every_row_belongs_to_a_table(page):
    for found in rows(page):
        assert re.fullmatch(r"\|(?: ?-+ ?\|)+", [*found.splitlines(), ""][1]), found[:80]


@pages_with(comparisons)
def test_no_command_compares_a_file_with_itself(page):
    for words in comparisons(page):
        assert len(set(words[:2])) == len(words[:2]), words


def test_the_page_of_codes_links_to_the_page_for_users():
    assert "../tasks/users.md" in pages.links(pages.ROOT / "docs" / "reference" / "codes.md")


@pytest.mark.parametrize("page", page_tables.TABLES, ids=pages.name)
def test_tables_that_are_generated_are_up_to_date(page):
    assert page_tables.TABLES[page](page.read_text()) == page.read_text(), "make docs"


@pages_with(policies)
def test_policies_in_samples_load(page, tmp_path):
    for number, text in enumerate(policies(page)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        assert load(file).teams


@pages_with(data)
def test_other_samples_are_yaml(page):
    for text in data(page):
        assert all(yaml.safe_load_all(text))


def test_the_readme_is_short_and_so_is_its_policy():
    page = pages.ROOT / "README.md"
    assert page.read_text().count("\n") <= 150
    assert max(b.text.count("\n") for b in pages.blocks(page) if "kind: Policy" in b.text) <= 15


@pytest.mark.slow
def test_make_run_prints_one_decision_and_one_refusal(tmp_path):
    want = (Path(__file__).parent / "golden" / "make-run.txt").read_text()
    tryout = [sys.executable, "-m", "webhook", "tryout", "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(pages.ROOT)}
    lines = []
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with killed_on_failure(subprocess.Popen(tryout, cwd=tmp_path, env=environment, text=True, **pipes)) as running:
        for line in running.stdout:
            lines.append(line)
            if line.startswith("Serving;"):
                break
        running.terminate()
    printed = "".join(lines).strip().replace(f"{pages.ROOT}/", "")
    assert re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8443", printed) == want.strip()


def test_the_readmes_refusal_is_what_kubectl_prints():
    [refusal] = [b.text for b in pages.blocks(pages.ROOT / "README.md") if b.text.startswith("Error from server")]
    assert refusal in (pages.ROOT / "docs" / "tasks" / "quickstart.md").read_text()


def test_the_table_of_events_lists_every_reason():
    assert [row[0] for row in pages.table(SIGNALS, first="reason")] == list(EventReason)


def test_every_event_of_the_log_is_on_the_page():
    source = "".join(file.read_text() for file in (pages.ROOT / "webhook").rglob("*.py"))
    written = set(re.findall(r'\.(?:info|warning|error)\(\s*"([^"%]+)"', source))
    assert len(written) > 50
    text = SIGNALS.read_text()
    assert {event for event in written if f"`{event}`" not in text} == set()


def test_every_error_over_http_is_in_the_table():
    rooms = (pages.ROOT / "webhook" / name for name in ("server", "addons"))
    source = "".join(file.read_text() for room in rooms for file in room.rglob("*.py"))
    raised = re.findall(r'(?:HttpError|_error)\((\d+), (?:{"error": text, "code": )?"(\w+)"', source)
    listed = {(status, code) for status, code, _, _ in pages.table(SIGNALS, first="status")}
    assert listed == {*raised, ("400", "MalformedReview")}


def test_the_fields_of_a_decisions_line_are_all_explained():
    record = Record(**dict.fromkeys(Record._fields, "") | {"reason": Reason(Code.BORROWS, "")})
    fields = ["time", "level", "event", *decision_line(Phase.MUTATE, record, 0.0)]
    listed = [field for row in pages.table(SIGNALS, first="field") for field in re.findall(r"\w+", row[0])]
    assert sorted(listed) == sorted(fields)


def test_pre_commit_runs_what_make_lint_runs():
    hooks = yaml.safe_load((pages.ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    recipe = MAKEFILE.partition("\nlint:")[2].partition("\n\n")[0].replace("$(BIN)", ".venv/bin")
    assert [hook["entry"] for hook in hooks] == [line.strip() for line in recipe.splitlines()[1:]]
    assert {hook["language"] for hook in hooks} == {"system"}


def test_pages_and_sections_that_code_and_chart_name_exist():
    link_in_code = re.compile(r"(?<![\w/])docs/(?!configuration/)[\w/-]+\.md(?:#[\w-]+)?")
    sources = (file for folder in ("webhook", "certs", "charts") for file in (pages.ROOT / folder).rglob("*"))
    texts = (file.read_text() for file in sources if file.suffix in {".py", ".yaml", ".txt"})
    named = {link for text in texts for link in link_in_code.findall(text)}
    assert len(named) > 40
    for link in named:
        path, _, anchor = link.partition("#")
        assert not anchor or anchor in pages.anchors(pages.ROOT / path), link
        assert (pages.ROOT / path).exists(), link


def test_every_decision_is_in_the_index():
    adr = pages.ROOT / "docs" / "adr"
    assert set(pages.links(adr / "README.md")) == {page.name for page in adr.glob("0*.md")}


def test_every_attempt_of_a_tenant_has_an_existing_test():
    page = pages.ROOT / "docs" / "reference" / "attempts.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("- ")]
    assert len(rows) >= 170
    assert [row for row in rows if not re.match(r"- [^:]+: .*\]\(", row)] == [], "an attempt: its outcome (its tests)"
    for name, path in re.findall(r"\[`([^`]+)`\]\((?:\.\./)+(tests/[^)]+)\)", "\n".join(rows)):
        file = pages.ROOT / path
        assert file.name == name or re.search(rf"^(async )?def {name}\(", file.read_text(), flags=re.MULTILINE), name


def test_the_folder_of_a_page_says_what_it_is():
    docs = pages.ROOT / "docs"
    found = {page.relative_to(docs).parts[0] for page in docs.rglob("*.md")}
    first = {"README.md", "architecture.md", "benchmarks.md", "comparison.md"}
    assert found == first | {"adr", "concepts", "development", "reference", "tasks"}


def test_every_page_is_in_the_index():
    docs = pages.ROOT / "docs"
    linked = {(docs / link.partition("#")[0]).resolve() for link in pages.links(docs / "README.md")}
    assert {page for page in docs.rglob("*.md") if page.parent.name != "adr"} - {docs / "README.md"} <= linked
