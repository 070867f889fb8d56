"""`fairgate usage`: read the flags, find the source, print the report, say in one line what is wrong."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from webhook.addons.history import reader
from webhook.addons.history.meter import INTERVAL_SECONDS
from webhook.addons.history.reader import By, read_usage, recorded_range, whole_intervals
from webhook.addons.history.store import HistoryError
from webhook.addons.history.usage.report import UsageReport, build, parse_time, time_text, to_csv, to_table
from webhook.cli.grid import print_error
from webhook.cli.options import (
    columns,
    command,
    is_colored,
    kubeconfig_option,
    limit_option,
    most_rows,
    of,
    option,
    path_option,
)
from webhook.cli.output import to_json

_EXAMPLES: Final = """\b
Examples:
  fairgate usage --since 30d --by team -o csv
  fairgate usage --history history.db --by user

\b
Exit status: 0 shown, 2 the source cannot be read, or you may not read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options."""

    since: str = option(
        "--since", default="7d", show_default=True, metavar="TIME", help="Begin: an age such as 7d, or a time."
    )
    until: str = option("--until", default="now", show_default=True, metavar="TIME", help="End: an age or a time.")
    by: str = option(
        "--by",
        type=click.Choice([each.value for each in By]),
        default=By.TEAM.value,
        show_default=True,
        help="What the lines are.",
    )
    layout: str = option(
        "-o",
        "--output",
        type=click.Choice(["table", "csv", "json"]),
        default="table",
        show_default=True,
        help="Table for people, CSV for spreadsheets, JSON for programs.",
    )
    history: tuple[Path, ...] = path_option(
        "--history",
        multiple=True,
        help="Read a file that `fairgate serve --history` wrote. Repeatable: the files of several replicas are merged.",
    )
    kubeconfig: Path | None = of(kubeconfig_option)
    limit: int | None = of(limit_option)


@command(Options, epilog=_EXAMPLES)
def usage(options: Options) -> None:
    """Show GPU-hours: held guaranteed and preemptible, idle, waiting; and what was refused.

    Then what part of the GPUs and nodes was in use, and how long jobs waited by their size.

    Without --history the servers of the cluster are asked: they must record a history, and you must
    have the right to list pods in all namespaces. Without that right you see what the leader published of it: the sums
    of teams for --since 1d, 7d and 30d. Times are widened to intervals of five minutes.
    """
    start, end = _range(options.since, options.until)
    history = options.history
    if history and options.kubeconfig is not None:
        raise click.UsageError("--history and --kubeconfig exclude each other")
    report = _of_files(options, start, end) if history else _of_cluster(options, start, end)
    match options.layout:
        case "csv":
            click.echo(to_csv(report), nl=False)
        case "json":
            click.echo(to_json(report), nl=False)
        case _:
            shown = most_rows(options.limit)
            click.echo(to_table(report, limit=shown, width=columns(), is_colored=is_colored()), nl=False)


def _range(since: str, until: str) -> tuple[int, int]:
    now = time.time()
    try:
        start, end = parse_time(since, now=now), parse_time(until, now=now)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not 0 <= start < end:
        raise click.UsageError(f"--since {since} is not before --until {until}")
    return whole_intervals(start, end)


def _note_range(files: tuple[Path, ...]) -> None:
    """Say on standard error when the files record, where they have nothing in the time that was asked for."""
    ranges = [recorded_range(path) for path in files]
    first, last = min(start for start, _ in ranges), max(end for _, end in ranges)
    print_error(f"nothing is recorded in this time: the history is from {time_text(first)} to {time_text(last)}")


def _of_files(options: Options, start: int, end: int) -> UsageReport:
    files = options.history
    step = INTERVAL_SECONDS if len(files) > 1 else reader.step_seconds(start, end)
    recordings = [read_usage(path, start, end, step_seconds=step) for path in files]
    if not any(each.rows for each in recordings):
        _note_range(files)
    return build(recordings, By(options.by), since=start, until=min(end, time.time()))


def _of_cluster(options: Options, start: int, end: int) -> UsageReport:
    """Return what the servers recorded; for users who may not read that, what the leader published of it."""
    from webhook.addons.history.usage.live import NotAllowedError, read_live, read_published  # noqa: PLC0415 - slow to import

    by, now = By(options.by), time.time()
    try:
        report = build(read_live(options.kubeconfig, start, end), by, since=start, until=min(end, now))
    except NotAllowedError as error:
        seconds = now - parse_time(options.since, now=now) if options.until == "now" else 0.0
        try:
            report = read_published(options.kubeconfig, by=by, seconds=seconds)
        except HistoryError as why:
            raise HistoryError(f"{error}; {why}") from error
        print_error(f"these are the sums that the leader published; the history itself cannot be read: {error}")
    return report
