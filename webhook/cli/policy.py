"""`fairgate policy`: check a policy folder, show the effect of an edit, print the JSON Schema of the format."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from webhook.cli.command import WorldOptions, argument, command, of
from webhook.cli.formatting import plural
from webhook.cli.options import (
    Layout,
    chosen_source,
    columns,
    is_colored,
    layout_option,
    namespaces_option,
    world_options,
)
from webhook.cli.quotas import from_quotas
from webhook.core.model.policy import Policy
from webhook.core.model.text import printable, printable_lines
from webhook.policy.build import build
from webhook.policy.jsonschema import json_schema
from webhook.policy.load import read_draft
from webhook.policy.problems import PolicyError, PolicyUnreadable, Problem
from webhook.policy.source import read_files
from webhook.policy.validate import Draft

if TYPE_CHECKING:
    from webhook.cli.world_source import Source


@click.group()
def policy() -> None:
    """Check policy files, show the effect of an edit, print the format."""


policy.add_command(from_quotas)


@policy.command(
    epilog="""\b
Examples:
  fairgate policy check policies/default
  fairgate policy check policies/default --world world.yaml --fail-on warning
  fairgate policy check team.yaml && kubectl apply -k .

\b
Exit status: 0 the policy is valid, 1 it has problems (or --fail-on), 2 it or the world cannot be read."""
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@world_options
@click.option("--fail-on", type=click.Choice(["warning"]), help="Also fail for warnings of --world or --cluster.")
def check(*, folder: Path, world: Path | None, cluster: bool, kubeconfig: Path | None, fail_on: str | None) -> None:
    """Report every problem of the policy files in DIR (or of one file).

    Problems go to standard output, one per line, as FILE:LINE: FIELD: what is wrong, what is expected.

    With --world or --cluster a valid policy is also compared with the existing nodes, namespaces and pods. It warns of
    shares that cannot be met, limits that are never reached, namespaces, labels, GPU models and resources that do not
    exist, pools without nodes or that no pod can use, pools whose match selects every GPU pod without a label, and GPU
    nodes without a taint (with the command that taints them).
    """
    draft = _draft(folder)
    loaded = build(draft)
    warnings: tuple[Problem, ...] = ()
    if world is not None or cluster or kubeconfig is not None:
        warnings = _lint(folder, draft, loaded, chosen_source(world=world, cluster=cluster, kubeconfig=kubeconfig))
    for warning in warnings:
        click.echo(_styled(warning))
    if warnings:
        click.echo(f"{plural(len(warnings), 'warning')} in {folder}", err=True)
    if warnings and fail_on:
        sys.exit(1)
    click.echo(_summary(folder, loaded))


_DIFF_EXAMPLES: Final = """\b
Examples:
  fairgate policy diff policies.old policies.new --world world.yaml
  git worktree add ../main main && fairgate policy diff ../main/policies policies --cluster
  fairgate policy diff policies

\b
Exit status: 0 no change, 1 changes, 2 a policy is invalid or something cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions(WorldOptions):
    """The options of `policy diff`."""

    policies: tuple[Path, ...] = argument(metavar="[OLD] NEW", nargs=-1, required=True, type=click.Path(path_type=Path))
    namespaces: tuple[str, ...] = of(namespaces_option)
    layout: Layout = of(layout_option)


@command(DiffOptions, epilog=_DIFF_EXAMPLES)
def diff(options: DiffOptions) -> None:
    """Show which pods would change tier, team or pool, wait in line or be refused, under another policy.

    Without OLD, NEW is compared with the policy in force in the cluster.

    Every GPU pod of the world (by default the cluster) is decided under both policies as if it were created again on
    its node: pods that are guaranteed now first, then in order of age. Fairgate never removes running pods because of
    an edit: pods shown as refused could not be created again, and those shown as queued would wait. Of the pods that
    wait in line now, those get a tier that NEW would start at once.
    """
    # rich is slow to import, and --help needs none of it
    from webhook.cli.policy_diff import compare, to_table  # noqa: PLC0415
    from webhook.cli.serialization import to_json, to_yaml  # noqa: PLC0415
    from webhook.cli.world_source import WorldError, choose_policy, origin_of, read_objects  # noqa: PLC0415

    folders, source = options.policies, options.source
    if len(folders) > 2:  # noqa: PLR2004 - old and new
        raise click.UsageError(f"give one policy, or two: got {len(folders)}")
    *old, after = (build(_draft(folder, status=2)) for folder in folders)
    try:
        before = old[0] if old else choose_policy(None, source)
        read = read_objects(source, namespaces=options.namespaces)
        read.coverage.print_notes()
        found = compare(read, before, after, name=origin_of(source).name)
    except WorldError as error:
        click.secho(printable_lines(f"fairgate: {error}"), fg="red", err=True)
        sys.exit(2)
    match options.layout:
        case Layout.JSON:
            text = to_json(found)
        case Layout.YAML:
            text = to_yaml(found)
        case Layout.TABLE | Layout.WIDE:
            text = to_table(found, width=columns(), is_colored=is_colored())
    click.echo(text, nl=False)
    sys.exit(1 if found.changes else 0)


policy.add_command(diff)


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


def _draft(folder: Path, *, status: int = 1) -> Draft:
    """Read and check a policy; print its problems and exit with this status if it has any."""
    try:
        return read_draft(read_files(folder), origin=str(folder))
    except PolicyUnreadable as error:
        click.secho(printable_lines(str(error)), fg="red", err=True)
        sys.exit(2)
    except PolicyError as error:
        for problem in error.problems:
            click.echo(_styled(problem))
        click.echo(f"{plural(len(error.problems), 'problem')} in {folder}", err=True)
        sys.exit(status)


def _lint(folder: Path, draft: Draft, loaded: Policy, source: "Source") -> tuple[Problem, ...]:
    """Return the warnings of a valid policy compared with a world."""
    from webhook.cli.world_source import WorldError, read_once  # noqa: PLC0415 - slow to import
    from webhook.policy.lint import lint  # noqa: PLC0415

    try:
        view = read_once(source, loaded, keep_nodes=True)
        view.coverage.print_notes()
        return lint(
            draft,
            loaded,
            view.world,
            origin=str(folder),
            knows_nodes=not view.coverage.is_partial("nodes"),
            knows_namespaces=not view.coverage.is_partial("namespaces"),
        )
    except WorldError as error:
        click.secho(printable_lines(f"fairgate: {error}"), fg="red", err=True)
        sys.exit(2)


def _summary(folder: Path, loaded: Policy) -> str:
    teams = printable(", ".join(team.name for team in loaded.teams)) or "none"
    pools = printable(", ".join(pool.name for pool in loaded.pools)) or "none (all nodes are one pool)"
    departments = printable(", ".join(each.name for each in loaded.departments))
    tree = (f"  tree   {departments}",) if departments else ()
    return "\n".join((f"{folder}: valid", f"  teams  {teams}", *tree, f"  pools  {pools}", f"  hash   {loaded.hash}"))


def _styled(problem: Problem) -> str:
    """Return a problem with its place in bold; click removes the style if the output is not a terminal."""
    place = str(problem).removesuffix(problem.message)
    return click.style(printable(place), bold=True) + printable(problem.message)
