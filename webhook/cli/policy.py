"""`fairgate policy`: check and schema.

Runs `fairgate policy check`: every problem of each policy, and what has no effect in a world.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import click

from webhook.cli.addons import unread
from webhook.cli.options import (
    Layout,
    WorldOptions,
    argument,
    columns,
    command,
    is_colored,
    layout_option,
    limit_option,
    most_rows,
    of,
    only_namespaces_option,
    option,
)
from webhook.cli.policy_diff import from_quotas
from webhook.core.model.amounts import plural, printable, printable_lines
from webhook.core.model.policy import Policy
from webhook.policy.build import build
from webhook.policy.documents import Files, PolicyError, PolicyUnreadable, Problem, read_files
from webhook.policy.schema import json_schema
from webhook.policy.validate import Draft
from webhook.policy.watch import read_draft

if TYPE_CHECKING:
    from webhook.cli.world_source import Source

VALID: Final = 0
INVALID: Final = 1
UNREADABLE: Final = 2


def check_all(paths: Sequence[Path], source: "Source | None", *, limit: int, fails_on_warning: bool) -> int:
    """Check each policy, against a world if there is one; return the exit status of the worst.

    A folder is one policy, and so are the files of one folder; of the problems and warnings of each, `limit` are shown.
    """
    return max(_check(group, source, limit=limit, fails_on_warning=fails_on_warning) for group in _policies(paths))


def read_or_exit(path: Path) -> Policy:
    """Return a policy; print its problems and exit with 2 if it has any."""
    try:
        return build(read_draft(read_files(path), origin=str(path), unread=unread()))
    except PolicyUnreadable as error:
        _print_unreadable(error)
    except PolicyError as error:
        _print(error.problems, str(path), "problem", limit=sys.maxsize)
    sys.exit(UNREADABLE)


def _policies(paths: Iterable[Path]) -> list[list[Path]]:
    """Return the paths of each policy: a folder, or files of the same folder."""
    groups: dict[Path, list[Path]] = {}
    for path in dict.fromkeys(paths):
        if path.is_dir():
            groups[path] = [path]
    for path in dict.fromkeys(paths):
        if not path.is_dir() and groups.get(path.parent) != [path.parent]:
            groups.setdefault(path.parent, []).append(path)
    return list(groups.values())


def _check(paths: Sequence[Path], source: "Source | None", *, limit: int, fails_on_warning: bool) -> int:
    origin = ", ".join(map(str, paths))
    try:
        files: Files = {name: content for path in paths for name, content in read_files(path).items()}
        draft = read_draft(files, origin=origin, unread=unread())
        loaded = build(draft)
        warnings, exempt = ((), ()) if source is None else _lint(origin, draft, loaded, source)
    except PolicyUnreadable as error:
        _print_unreadable(error)
        return UNREADABLE
    except PolicyError as error:
        _print(error.problems, origin, "problem", limit=limit)
        return INVALID
    _print(warnings, origin, "warning", limit=limit)
    if warnings and fails_on_warning:
        return INVALID
    click.echo(_summary(origin, loaded, exempt))
    return VALID


class _Compared(NamedTuple):
    """What a world says of a policy: warnings, and the namespaces that are exempt by default."""

    warnings: tuple[Problem, ...]
    exempt: tuple[str, ...]


def _lint(origin: str, draft: Draft, loaded: Policy, source: "Source") -> _Compared:
    """Compare a valid policy with a world."""
    from webhook.cli.world_source import other_products, read_ended, read_once  # noqa: PLC0415 - slow to import
    from webhook.policy.lint import exempt_by_default, lint  # noqa: PLC0415

    view = read_once(source, loaded, keep_nodes=True)
    ended = [pod.namespace for pod in view.ended or read_ended(source, loaded)]
    others = other_products(source)
    view.coverage.print_note()
    if others:
        click.echo(f"note: {others}", err=True)
    warnings = lint(
        draft,
        loaded,
        view.world,
        origin=origin,
        knows_nodes=not view.coverage.is_partial("nodes"),
        knows_namespaces=not view.coverage.is_partial("namespaces"),
        ended=ended,
    )
    return _Compared(warnings, tuple(exempt_by_default(loaded, view.world, ended)))


def _print_unreadable(error: PolicyUnreadable) -> None:
    click.secho(printable_lines(str(error)), fg="red", err=True)


def _print(problems: Sequence[Problem], origin: str, noun: str, *, limit: int) -> None:
    """Print problems, with their places in bold, and how many there are on standard error."""
    for problem in problems[:limit]:
        place = str(problem).removesuffix(problem.message)
        click.echo(click.style(printable(place), bold=True) + printable(problem.message))
    if (more := len(problems) - limit) > 0:
        click.echo(f"and {plural(more, f'more {noun}')}: --limit or a pipe shows them")
    if problems:
        click.echo(f"{plural(len(problems), noun)} in {origin}", err=True)


def _summary(origin: str, loaded: Policy, exempt: Sequence[str]) -> str:
    teams = printable(", ".join(team.name for team in loaded.teams)) or "none"
    pools = printable(", ".join(pool.name for pool in loaded.pools)) or "none (all nodes are one pool)"
    departments = printable(", ".join(each.name for each in loaded.departments))
    tree = (f"  tree   {departments}",) if departments else ()
    by_default = (f"  exempt {printable('; '.join(exempt))}; by default (exempt.operators)",) if exempt else ()
    head = (f"{origin}: valid", f"  teams  {teams}", *tree, f"  pools  {pools}", *by_default)
    return "\n".join((*head, f"  hash   {loaded.hash}"))


# `fairgate policy`: check a policy folder, show the effect of an edit, print the JSON Schema of the format.


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
    namespaces: tuple[str, ...] = of(only_namespaces_option)
    limit: int | None = of(limit_option)
    layout: Layout = of(layout_option)


@command(DiffOptions, epilog=_DIFFS)
def diff(options: DiffOptions) -> None:
    """Show what becomes of pods once another policy is in force: their tier and team, and who starts from the queue.

    Without OLD, NEW is compared with the policy in force in the cluster.

    The reload is played on the world (by default the cluster) as Fairgate's leader does it. No running pod is removed
    because of an edit. Besides, each is judged as if it were created again on its node, guaranteed pods first, then in
    order of age: it could be refused then, wait, or belong to another pool. Limits that leave no GPU are named, too.
    """
    # rich is slow to import, and --help needs none of it
    from webhook.cli.output import to_data  # noqa: PLC0415
    from webhook.cli.policy_diff import compare, to_table  # noqa: PLC0415
    from webhook.cli.world_source import choose_policy, origin_of, read_objects  # noqa: PLC0415

    if len(options.policies) > _TWO:
        raise click.UsageError(f"give one policy, or two: got {len(options.policies)}")
    source = options.source
    *old, after = map(read_or_exit, options.policies)
    before = old[0] if old else choose_policy(None, source)
    read = read_objects(source, namespaces=options.namespaces)
    read.coverage.print_note()
    found = compare(read, before, after, name=origin_of(source).name, only=options.namespaces)
    if options.layout.is_data:
        text = to_data(found, options.layout)
    else:
        text = to_table(found, limit=most_rows(options.limit), width=columns(), is_colored=is_colored())
    click.echo(text, nl=False)
    sys.exit(1 if found.changes or found.idle or found.full else 0)


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
