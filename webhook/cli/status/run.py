"""Runs `fairgate status`, once or following.

What `fairgate status --watch` shows: the last world that could be read, and since when it is not up to date.
"""

import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import click

from webhook.cli.options import Layout, can_move, columns, is_colored, most_rows
from webhook.cli.output import to_data
from webhook.cli.screen import progress
from webhook.cli.status.command import Options
from webhook.cli.status.report import report_of
from webhook.cli.status.table import MINIMUMS, Look, to_lines, to_screenful
from webhook.cli.world_source import (
    ForbiddenError,
    Origin,
    Source,
    View,
    choose_policy,
    describe_world,
    origin_of,
    read_once,
    watch_world,
)
from webhook.core.explain.team_rows import board_of
from webhook.core.model.policy import Policy
from webhook.files import InputError
from webhook.kube.ledger import reports
from webhook.server.settings import FileWorld, LiveCluster

_CHANGES: Final = "its file is being written"


@dataclass(frozen=True, slots=True)
class Reading:
    """A world, its origin, and why it is out of date, None while it is not."""

    view: View
    origin: Origin
    why_stale: str | None = None


class _Stamp(NamedTuple):
    """What changes with a file."""

    inode: int
    mtime: int
    size: int


class Follower:
    """Reads a source again and again; `read` returns its world, and raises InputError.

    A file is read when it has changed and was then left alone until the next look, so that one that is just being
    written is not taken for what it is to be. What cannot be read does not replace what could be.
    """

    def __init__(self, source: Source, read: Callable[[], View]) -> None:
        self._source = source
        self._read = read
        self._last: Reading | None = None
        self._read_at = 0.0
        self._taken: _Stamp | None = None
        self._seen: _Stamp | None = None

    def look(self) -> Reading:
        """Return the present reading. Raises InputError if nothing could ever be read."""
        stamp = _stamp(self._source.path) if isinstance(self._source, FileWorld) else None
        seen, self._seen = self._seen, stamp
        if self._last is not None and stamp is not None and stamp == self._taken:
            return self._shown(self._last, None)
        if self._last is not None and stamp is not None and (stamp != seen or stamp.size == 0):
            return self._shown(self._last, _CHANGES)
        try:
            found = Reading(self._read(), origin_of(self._source))
        except InputError as error:
            if self._last is None:
                raise
            return self._shown(self._last, str(error))
        self._last, self._read_at, self._taken = found, time.time(), stamp
        return found

    def _shown(self, last: Reading, why: str | None) -> Reading:
        """Return what was read last, older by the time since."""
        older = last.origin.age_seconds + time.time() - self._read_at
        return replace(last, origin=replace(last.origin, age_seconds=older), why_stale=why)


def _stamp(path: Path) -> _Stamp | None:
    """Return what changes with a file; None where it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return _Stamp(found.st_ino, found.st_mtime_ns, found.st_size)


# What the processes of a live cluster report: messages that do not arrive, and that the use of GPUs is not known.


AGAIN_SECONDS: Final = 15.0
"""How long an answer is shown by --watch: credentials are loaded for each."""


class Reported(NamedTuple):
    """Why it is not known which pods use their GPUs, "" if it is; and targets of messages that are not reached."""

    idle_unknown: str = ""
    unreached: tuple[str, ...] = ()


class ProcessReports:
    """Reads the reports now and then."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known = Reported()
        self._read_at = float("-inf")

    async def read(self, policy: Policy) -> Reported:
        """Return what is reported; nothing that policy has no rules for, or where the reports may not be read."""
        if not isinstance(self._source, LiveCluster) or not (policy.idle or policy.notify.targets):
            return Reported()
        if time.monotonic() - self._read_at > AGAIN_SECONDS:
            self._known, self._read_at = await _read_reports(self._source, policy), time.monotonic()
        return self._known


async def _read_reports(source: LiveCluster, policy: Policy) -> Reported:
    from webhook.cluster.api.client import ClusterError, connect  # noqa: PLC0415 - slow to import, and files need none of it
    from webhook.cluster.writes.reports import read_report  # noqa: PLC0415

    try:
        async with await connect(source.kubeconfig) as connection:
            report = await read_report(connection, reports.REPLICAS)
            now = connection.server_time or time.time()
    except ClusterError:
        return Reported()
    texts = dict.fromkeys(text for each in report.replicas.values() for text in each.notify)
    return Reported(
        "" if policy.idle is None else _idle_unknown(report, now), tuple(texts) if policy.notify.targets else ()
    )


def _idle_unknown(report: reports.Report, now: float) -> str:
    if not reports.evictor_leads(report, now=now):
        return "no evictor leads"
    return next((each.idle_problem for each in report.replicas.values() if each.leading and each.idle_problem), "")


# Runs `fairgate status`: once, or repeatedly with --watch.


_CLEAR: Final = "\x1b[2J\x1b[1;1H"
"""Clears a terminal, also where the user wants no colors."""

_PICTURE: Final = "·▁█"


def run(options: Options) -> None:
    """Show the status."""
    policy = choose_policy(options.policy, options.source)
    if options.watch:
        asyncio.run(_watch(options, policy))
    else:
        _show_once(options, policy)


def _show_once(options: Options, policy: Policy) -> None:
    with progress("Reading"):
        reading = Reading(_read(options, policy), origin_of(options.source))
        reported = asyncio.run(ProcessReports(options.source).read(policy))
    reading.view.coverage.print_note()
    click.echo(_written(options, reading, reported), nl=False)  # rich hides standard output while it shows a status


def _read(options: Options, policy: Policy) -> View:
    return read_once(options.source, policy, namespaces=options.namespaces, keep_nodes=True)


async def _watch(options: Options, policy: Policy) -> None:
    processes = ProcessReports(options.source)
    if isinstance(options.source, LiveCluster):
        origin = origin_of(options.source)
        with contextlib.suppress(ForbiddenError):  # watching is not allowed: read what is allowed at each interval
            async with watch_world(options.source.kubeconfig, policy) as watched:
                watched.coverage.print_note()
                while True:
                    watched.world.tick(int(time.time()))
                    reported = await processes.read(policy)
                    view = View(watched.world, watched.coverage)
                    _redraw(options, Reading(view, origin, watched.why_stale()), reported)
                    await asyncio.sleep(options.interval)
    follower = Follower(options.source, lambda: _read(options, policy))
    reading = await asyncio.to_thread(follower.look)
    reading.view.coverage.print_note()
    while True:
        _redraw(options, reading, await processes.read(policy))
        await asyncio.sleep(options.interval)
        reading = await asyncio.to_thread(follower.look)


def _redraw(options: Options, reading: Reading, reported: Reported) -> None:
    """Replace the content of a terminal; in a pipe append."""
    if can_move(sys.stdout):
        height = max(1, shutil.get_terminal_size().lines - 1)
        click.echo(_CLEAR + _written(options, reading, reported, height=height), nl=False, color=True)
    else:
        click.echo(_written(options, reading, reported), nl=False)


def _written(options: Options, reading: Reading, reported: Reported, *, height: int | None = None) -> str:
    """Return the status; `height` is how many lines a table may have."""
    view = reading.view
    board, notes = board_of(view.world), view.coverage.notes()
    if options.namespaces and not notes:  # who may not read all reads these, and the sums of all teams
        board = board.of_namespaces(options.namespaces, view.world)
    if not view.coverage.is_room_known:
        board = replace(board, free=())
    if options.layout.is_data:
        return to_data(report_of(board, notes, reported.unreached, idle_unknown=reported.idle_unknown), options.layout)
    look = Look(
        width=columns(),
        is_colored=is_colored(),
        is_wide=options.layout is Layout.WIDE,
        is_plain=not _can_draw(),
        has_node_rows=view.coverage.is_room_known or not view.coverage.is_partial("nodes"),
        nodes=most_rows(options.limit),
        minimums=options.limit or MINIMUMS,
    )
    source = describe_world(reading.origin, view.world)
    if reading.why_stale is not None:
        source += f"\nSTALE: {reading.why_stale}"
    if reported.idle_unknown:
        source += f"\nIDLE: it is not known which pods use their GPUs: {reported.idle_unknown}"
    source += "".join(f"\nmessages to people: {text}" for text in reported.unreached)
    lines = to_lines(board, look, source=source) if height is None else to_screenful(board, look, height, source=source)
    return "\n".join(lines) + "\n"


def _can_draw() -> bool:
    """Whether standard output can encode the characters of the picture."""
    try:
        _PICTURE.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
