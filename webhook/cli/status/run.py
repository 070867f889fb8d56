"""Runs `fairgate status`: once, or repeatedly with --watch."""

import asyncio
import contextlib
import shutil
import sys
import time
from dataclasses import replace
from typing import Final

import click

from webhook.cli.options import Layout, can_move, columns, is_colored, most_rows
from webhook.cli.screen import progress
from webhook.cli.serialization import to_data
from webhook.cli.status.command import Options
from webhook.cli.status.follow import Follower, Reading
from webhook.cli.status.process_reports import ProcessReports, Reported
from webhook.cli.status.report import report_of
from webhook.cli.status.table import MINIMUMS, Look, to_lines, to_screenful
from webhook.cli.world_source import (
    ForbiddenError,
    View,
    choose_policy,
    describe_world,
    origin_of,
    read_once,
    watch_world,
)
from webhook.core.explain.board import board_of
from webhook.core.model.policy import Policy
from webhook.server.settings import LiveCluster

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
