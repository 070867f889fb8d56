"""`fairgate replay`: read the flags, decide the recorded pods again, print the difference."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from webhook.addons.history.reader import read_trace, recorded_range
from webhook.addons.history.store import HistoryError, Trace
from webhook.addons.history.usage.live import read_pods
from webhook.addons.history.usage.report import parse_time, time_text
from webhook.addons.simulation.replay.recorded import (
    RecordedPods,
    ReplayReport,
    as_recorded,
    changes_of,
    decide_again,
    joined,
    policy_in_force,
    policy_of,
    recorded_pods,
    teams_of,
    to_table,
    world_of,
)
from webhook.cli.options import (
    argument,
    columns,
    command,
    is_colored,
    kubeconfig_option,
    limit_option,
    most_rows,
    of,
    option,
    path_option,
    table_or_json_option,
)
from webhook.cli.output import to_json
from webhook.core.model.policy import Policy
from webhook.policy.watch import load

_CHANGES: Final = 1
_MOST_POLICIES: Final = 2


_EXAMPLES: Final = """\b
Examples:
  fairgate replay history.db --policy policies.new
  fairgate replay history.db --policy policies.new --policy policies.old -o json

\b
Exit status: 0 the policies make no difference, 1 they do, 2 a file cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options."""

    history: tuple[Path, ...] = argument(nargs=-1, type=click.Path(path_type=Path))
    policies: tuple[Path, ...] = path_option(
        "--policy",
        multiple=True,
        required=True,
        metavar="DIR",
        help="The new policy; then the old one, by default the last one that the history recorded.",
    )
    since: str | None = option(
        "--since", metavar="TIME", help="Begin: an age such as 7d, or a time. Default: all that is recorded."
    )
    until: str | None = option("--until", metavar="TIME", help="End: an age or a time. Default: all that is recorded.")
    kubeconfig: Path | None = of(kubeconfig_option)
    layout: str = of(table_or_json_option)
    limit: int | None = of(limit_option)


@command(Options, epilog=_EXAMPLES)
def replay(options: Options) -> None:
    """Decide the pods of a history again, under another policy.

    HISTORY is a file of `fairgate serve --history`; the files of several replicas are joined. Without one the servers
    of the cluster are asked, with the rights of `fairgate usage`. Pods come when they came, run as long as they ran, on
    the nodes that there were, through the decisions of the webhook, the queue and reclaim. It shows for each team what
    would have been refused, queued, preemptible and evicted, and for which pods that differs from what happened, or,
    with two policies, from what the old one would have done.
    """
    if len(options.policies) > _MOST_POLICIES:
        raise click.UsageError(f"give one policy, or two: got {len(options.policies)}")
    report = _report(options)
    if options.layout == "json":
        text = to_json(report)
    else:
        text = to_table(report, limit=most_rows(options.limit), width=columns(), is_colored=is_colored())
    click.echo(text, nl=False)
    sys.exit(_CHANGES if report.changes else 0)


def _report(options: Options) -> ReplayReport:
    if options.history:
        start, end = _range(options, [recorded_range(path) for path in options.history])
        trace = joined(read_trace(path, start, end) for path in options.history)
    else:
        asked = _asked_range(options, 0.0, time.time())
        found = read_pods(options.kubeconfig, int(asked[0]), int(asked[1]) + 1)
        start, end = _range(options, [(each.since, each.until) for each in found])
        trace = joined(each.trace for each in found)
    new, *old = (load(folder) for folder in options.policies)
    before = old[0] if old else policy_of(trace.policies)
    came = recorded_pods(trace, world_of(trace, policy_in_force(trace, otherwise=before)), until=end)
    return _compared(trace, came, before, new, within=(start, end), is_recorded=not old)


def _compared(
    trace: Trace, came: RecordedPods, old: Policy, new: Policy, *, within: tuple[float, float], is_recorded: bool
) -> ReplayReport:
    """Compare two policies; `is_recorded`: the old one is that of the record, which says itself what happened."""
    until, tasks = int(within[1]), came.tasks
    before, after = (decide_again(tasks, world_of(trace, policy), until=until) for policy in (old, new))
    rows = {row.uid: row for row in trace.pods}
    if is_recorded:
        before, after = as_recorded(rows, before, after, until=until)
    return ReplayReport(
        since=time_text(within[0]),
        until=time_text(within[1]),
        old_policy=old.hash,
        new_policy=new.hash,
        pods=len(tasks),
        left_out=dict(sorted(came.left_out.items())),
        teams=teams_of(tasks, rows, before, after),
        changes=list(changes_of(tasks, rows, before, after)),
    )


def _asked_range(options: Options, first: float, last: float) -> tuple[float, float]:
    """Return the time range that was asked for, within another one."""
    now = time.time()
    try:
        start = first if options.since is None else max(first, parse_time(options.since, now=now))
        end = last if options.until is None else min(last, parse_time(options.until, now=now))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return start, end


def _range(options: Options, ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the time range: what was asked for, within what is recorded. Raises HistoryError."""
    first, last = min(start for start, _ in ranges), max(end for _, end in ranges)
    start, end = _asked_range(options, first, last)
    if start >= end:
        raise HistoryError(
            f"nothing is recorded in this time: the history is from {time_text(first)} to {time_text(last)}"
        )
    return start, end
