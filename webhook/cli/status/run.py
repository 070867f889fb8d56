"""Runs `fairgate status`: once, or repeatedly with --watch."""

import asyncio
import contextlib
import sys
import time
from dataclasses import replace
from typing import Final

import click
from rich.console import Console

from webhook.cli.options import Layout, columns, is_colored
from webhook.cli.screen import progress
from webhook.cli.serialization import to_json, to_yaml
from webhook.cli.status.command import Options
from webhook.cli.status.report import report_of
from webhook.cli.status.table import to_table
from webhook.cli.terminal import print_problems
from webhook.cli.world_source import (
    ForbiddenError,
    View,
    WorldError,
    choose_policy,
    describe_world,
    origin_of,
    read_once,
    watch_world,
)
from webhook.core.explain.board import board_of
from webhook.core.model.policy import Policy
from webhook.policy.problems import PolicyError, PolicyUnreadable
from webhook.server.settings import LiveCluster

SHOWN: Final = 0
UNREADABLE: Final = 2

_PICTURE: Final = "·▁█"


def run(options: Options) -> int:
    """Show the status, and return the exit status."""
    try:
        policy = choose_policy(options.policy, options.source)
        if options.watch:
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(_watch(options, policy))
        else:
            _show_once(options, policy)
    except (PolicyError, PolicyUnreadable, WorldError) as error:
        print_problems(error)
        return UNREADABLE
    return SHOWN


def _show_once(options: Options, policy: Policy) -> None:
    with progress("Reading"):
        view = _read(options, policy)
    view.coverage.print_note()
    click.echo(_written(options, view), nl=False)  # rich hides standard output while it shows a status


def _read(options: Options, policy: Policy) -> View:
    return read_once(options.source, policy, namespaces=options.namespaces, keep_nodes=True)


async def _watch(options: Options, policy: Policy) -> None:
    if isinstance(options.source, LiveCluster):
        with contextlib.suppress(ForbiddenError):  # watching is not allowed: read what is allowed at each interval
            async with watch_world(options.source.kubeconfig, policy) as watched:
                while True:
                    watched.world.tick(int(time.time()))
                    _redraw(_written(options, View(watched.world), why_stale=watched.why_stale()))
                    await asyncio.sleep(options.interval)
    is_first = True
    while True:
        view = await asyncio.to_thread(_read, options, policy)
        if is_first:
            view.coverage.print_note()
            is_first = False
        _redraw(_written(options, view))
        await asyncio.sleep(options.interval)


def _redraw(text: str) -> None:
    """Replace the content of a terminal; in a pipe append."""
    if sys.stdout.isatty():
        click.clear()
        text = "\n".join(text.splitlines()[: max(1, Console().size.height - 1)]) + "\n"
    click.echo(text, nl=False)
    sys.stdout.flush()


def _written(options: Options, view: View, *, why_stale: str | None = None) -> str:
    board, notes = board_of(view.world), view.coverage.notes()
    if not view.coverage.is_room_known:
        board = replace(board, free=())
    source = describe_world(origin_of(options.source), view.world)
    match options.layout:
        case Layout.JSON:
            return to_json(report_of(board, notes))
        case Layout.YAML:
            return to_yaml(report_of(board, notes))
        case Layout.TABLE | Layout.WIDE:
            return to_table(
                board,
                source=source if why_stale is None else f"{source}\nSTALE: {why_stale}",
                width=columns(),
                is_colored=is_colored(),
                is_wide=options.layout is Layout.WIDE,
                is_plain=not _can_draw(),
                has_nodes=view.coverage.is_room_known or not view.coverage.is_partial("nodes"),
            )


def _can_draw() -> bool:
    """Whether standard output can encode the characters of the picture."""
    try:
        _PICTURE.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
