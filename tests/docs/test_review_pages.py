"""The pages about the command line: generated ones are up to date, tables are complete, shells complete."""

import pytest
import yaml
from click.testing import CliRunner

from tests.docs import command_pages, pages
from webhook.cli.main import main
from webhook.cli.review.command import Format


@pytest.mark.parametrize("name", command_pages.pages())
def test_the_page_is_up_to_date(name):
    assert (pages.ROOT / "docs" / "reference" / name).read_text() == command_pages.pages()[name], "make docs"


def test_every_format_is_explained():
    listed = {
        name
        for row in pages.table(pages.ROOT / "docs" / "tasks" / "ci.md", first="format")
        for name in row[0].split(", ")
    }
    assert listed == set(Format)


def test_the_inputs_of_the_action_are_those_of_the_page():
    action = yaml.safe_load((pages.ROOT / ".github" / "actions" / "review" / "action.yml").read_text())
    want = [
        (name, "required" if given.get("required") else given["default"] or "none", given["description"])
        for name, given in action["inputs"].items()
    ]
    assert [tuple(row) for row in pages.table(pages.ROOT / "docs" / "tasks" / "ci.md", first="input")] == want


def test_a_shell_completes_commands_options_and_formats():
    def completed(*words):
        environ = {
            "_FAIRGATE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("fairgate", *words)),
            "COMP_CWORD": str(len(words)),
        }
        done = CliRunner().invoke(main, env=environ, prog_name="fairgate")
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("rev") == ["review"]
    assert "--fail-on" in completed("review", "--f")
    assert completed("review", "-o", "j") == ["json", "junit"]


def test_examples_of_ci_name_no_made_up_address():
    text = (pages.ROOT / "docs" / "tasks" / "ci.md").read_text()
    assert "example.org" not in text
    for word in ("REPOSITORY", "OWNER", "REF"):
        assert text.index(f"`{word}`") < min(text.index("## GitHub"), text.index("## GitLab"))
