"""Runs `fairgate policy check`: every problem of each policy, and what has no effect in a world."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from webhook.cli.formatting import plural
from webhook.core.model.policy import Policy
from webhook.core.model.text import printable, printable_lines
from webhook.policy.build import build
from webhook.policy.load import read_draft
from webhook.policy.problems import PolicyError, PolicyUnreadable, Problem
from webhook.policy.source import Files, read_files
from webhook.policy.validate import Draft

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
        return build(read_draft(read_files(path), origin=str(path)))
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
        draft = read_draft(files, origin=origin)
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
    from webhook.cli.world_source import WorldError, other_products, read_ended, read_once  # noqa: PLC0415 - slow to import
    from webhook.policy.lint import lint  # noqa: PLC0415
    from webhook.policy.unowned_pods import exempt_by_default  # noqa: PLC0415

    try:
        view = read_once(source, loaded, keep_nodes=True)
        ended = [pod.namespace for pod in view.ended or read_ended(source, loaded)]
        others = other_products(source)
    except WorldError as error:
        click.secho(printable_lines(f"fairgate: {error}"), fg="red", err=True)
        sys.exit(UNREADABLE)
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
