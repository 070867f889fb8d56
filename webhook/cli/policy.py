"""`fairgate policy`: check a policy folder, show the effect of an edit, print the JSON Schema of the format."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from webhook.cli.command import WorldOptions, argument, command, of, option
from webhook.cli.options import Layout, columns, is_colored, layout_option, limit_option, most_rows, namespaces_option
from webhook.cli.policy_check import UNREADABLE, check_all, read_or_exit
from webhook.cli.quotas import from_quotas
from webhook.core.model.text import printable_lines
from webhook.policy.jsonschema import json_schema

_TWO = 2
_CHECKS = """\b
Examples:
  fairgate policy check policies/default
  fairgate policy check policies/default --world world.yaml --fail-on warning
  fairgate policy check clusters/*/policies
  fairgate policy check team.yaml pools.yaml && kubectl apply -k .

\b
Exit status: 0 all are valid, 1 one has problems (or --fail-on), 2 one or the world cannot be read."""
_DIFFS = """\b
Examples:
  fairgate policy diff policies.old policies.new --world world.yaml
  git worktree add ../main main && fairgate policy diff ../main/policies policies --cluster
  fairgate policy diff policies

\b
Exit status: 0 no change, 1 changes, 2 a policy is invalid or something cannot be read."""


@click.group()
def policy() -> None:
    """Check policy files, show the effect of an edit, print the format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions(WorldOptions):
    """The options of `fairgate policy check`."""

    paths: tuple[Path, ...] = argument(metavar="DIR|FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
    fail_on: Literal["warning"] | None = option(
        "--fail-on", type=click.Choice(["warning"]), help="Also fail for warnings of --world or --cluster."
    )
    limit: int | None = of(limit_option)


@command(CheckOptions, epilog=_CHECKS)
def check(options: CheckOptions) -> None:
    """Report every problem of policies: each DIR is one, and the FILEs of one folder are one together.

    Problems go to standard output, one per line, as FILE:LINE: FIELD: what is wrong, what is expected.

    With --world or --cluster a valid policy is also compared with the existing nodes, namespaces and pods. It warns of
    shares that cannot be met, limits that are never reached, namespaces, labels, GPU models and resources that do not
    exist, pools without nodes or that no pod can use, pools whose match selects every GPU pod without a label, GPU
    nodes without a taint (with the command that taints them), and GPU pods of namespaces of no team, ended ones
    included. It also lists the namespaces that are exempt by default, and the
    other queues and schedulers of a cluster.
    """
    is_compared = options.world is not None or options.cluster or options.kubeconfig is not None
    source = options.source if is_compared else None
    fails_on_warning = options.fail_on is not None
    sys.exit(check_all(options.paths, source, limit=most_rows(options.limit), fails_on_warning=fails_on_warning))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions(WorldOptions):
    """The options of `fairgate policy diff`."""

    policies: tuple[Path, ...] = argument(metavar="[OLD] NEW", nargs=-1, required=True, type=click.Path(path_type=Path))
    namespaces: tuple[str, ...] = of(namespaces_option)
    limit: int | None = of(limit_option)
    layout: Layout = of(layout_option)


@command(DiffOptions, epilog=_DIFFS)
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
    from webhook.cli.serialization import to_data  # noqa: PLC0415
    from webhook.cli.world_source import WorldError, choose_policy, origin_of, read_objects  # noqa: PLC0415

    if len(options.policies) > _TWO:
        raise click.UsageError(f"give one policy, or two: got {len(options.policies)}")
    source = options.source
    *old, after = map(read_or_exit, options.policies)
    try:
        before = old[0] if old else choose_policy(None, source)
        read = read_objects(source, namespaces=options.namespaces)
        read.coverage.print_note()
        found = compare(read, before, after, name=origin_of(source).name)
    except WorldError as error:
        click.secho(printable_lines(f"fairgate: {error}"), fg="red", err=True)
        sys.exit(UNREADABLE)
    if options.layout.is_data:
        text = to_data(found, options.layout)
    else:
        text = to_table(found, limit=most_rows(options.limit), width=columns(), is_colored=is_colored())
    click.echo(text, nl=False)
    sys.exit(1 if found.changes else 0)


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


for _each in (check, diff, from_quotas):
    policy.add_command(_each)
