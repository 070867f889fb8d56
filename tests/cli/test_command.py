"""What every command has in common: options are fields, and what it cannot use ends it in a line for each problem."""

from dataclasses import dataclass

import click
import pytest
from click.testing import CliRunner

from webhook.addons.history.store import HistoryError
from webhook.addons.simulation.traces.formats import TraceError
from webhook.cli.options import UNUSABLE, command, option
from webhook.cluster.api.client import ApiError
from webhook.files import InputError
from webhook.kube.world_file.world_file import WorldFileError
from webhook.policy.documents import PolicyError, PolicyUnreadable, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Some options."""

    count: int = option("--count", default=7, help="How many.")
    port: int = option("--port", default=0, help="Default: a free one.")
    name: str = option("--name", default="", help="Default: any.")
    seed: int = option("--seed", default=0, show_default=True, help="Random.")


def run(raised, *words):
    @command(Options)
    def some(options: Options) -> None:
        """Raise an error."""
        if raised is not None:
            raise raised
        click.echo(f"{options.count} {options.port} {options.name!r}")

    return CliRunner().invoke(some, words)


@pytest.mark.parametrize(
    ("raised", "want"),
    [
        (InputError("one", "two"), "fairgate: one\nfairgate: two\n"),
        (
            PolicyError((Problem("a.yaml", 3, "teams", "is none"), Problem("b.yaml", 0, "", "is empty"))),
            "fairgate: a.yaml:3: teams: is none\nfairgate: b.yaml: is empty\n",
        ),
        (PolicyUnreadable("cannot read it"), "fairgate: cannot read it\n"),
        (ApiError("cannot list pods: 403", status=403), "fairgate: cannot list pods: 403\n"),
        (HistoryError("is truncated"), "fairgate: is truncated\n"),
        (WorldFileError("w.yaml:1: no", "w.yaml:2: no"), "fairgate: w.yaml:1: no\nfairgate: w.yaml:2: no\n"),
        (TraceError("t.csv: a\x1b[31m"), "fairgate: t.csv: a\\x1b[31m\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_used_ends_a_command_in_lines(raised, want):
    done = run(raised)
    assert (done.exit_code, done.stdout, done.stderr) == (UNUSABLE, "", want)


def test_a_bug_is_an_exception():
    assert isinstance(run(ZeroDivisionError()).exception, ZeroDivisionError)


def test_options_are_fields_and_help_shows_the_defaults_that_are_used():
    assert run(None, "--count", "3").stdout == "3 0 ''\n"
    shown = run(None, "--help").stdout
    assert "How many.  [default: 7]" in shown
    assert "Random.  [default: 0]" in shown
    assert shown.count("[default:") == 2
