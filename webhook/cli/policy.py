"""`fairgate policy`: check a policy folder, print the format's JSON Schema."""

import json
import sys
from pathlib import Path

import click

from webhook.core.policy import Policy
from webhook.policy.jsonschema import json_schema
from webhook.policy.load import load
from webhook.policy.problems import PolicyError, PolicyUnreadable, Problem


@click.group()
def policy() -> None:
    """Check policy files, describe their format."""


@policy.command(
    epilog="""\b
Examples:
  fairgate policy check policies/default
  fairgate policy check team.yaml && kubectl apply -k .

\b
Exit status: 0 the policy is good, 1 it has problems, 2 it cannot be read."""
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def check(folder: Path) -> None:
    """Report every problem of the policy files in DIR (or of one file).

    Problems go to standard output, one per line, as FILE:LINE: FIELD: what is wrong, what would be right.
    """
    try:
        loaded = load(folder)
    except PolicyUnreadable as error:
        click.secho(str(error), fg="red", err=True)
        sys.exit(2)
    except PolicyError as error:
        for problem in error.problems:
            click.echo(_coloured(problem))
        count = len(error.problems)
        click.echo(f"{count} problem{'s' * (count != 1)} in {folder}", err=True)
        sys.exit(1)
    click.echo(_summary(folder, loaded))


@policy.command(
    epilog="""\b
Examples:
  fairgate policy schema > policies/schema.json

\b
Editors with the YAML language server then complete and check a file that starts with
  # yaml-language-server: $schema=../schema.json"""
)
def schema() -> None:
    """Print the JSON Schema of policy files (draft 2020-12)."""
    click.echo(json.dumps(json_schema(), indent=2))


def _summary(folder: Path, loaded: Policy) -> str:
    teams = ", ".join(team.name for team in loaded.teams) or "none"
    pools = ", ".join(pool.name for pool in loaded.pools) or "none (all nodes are one pool)"
    return "\n".join((f"{folder}: good", f"  teams  {teams}", f"  pools  {pools}", f"  hash   {loaded.hash}"))


def _coloured(problem: Problem) -> str:
    """Set the place off; click drops the colours where the output is no terminal."""
    text = str(problem)
    place = text.removesuffix(problem.message)
    return click.style(place, bold=True) + problem.message
