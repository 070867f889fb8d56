"""Carries `fairgate status` out: once, or again and again while the cluster goes on."""

import asyncio
import contextlib
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from webhook.cli.options import Layout, columns, is_colored
from webhook.cli.serialization import to_json, to_yaml
from webhook.cli.status.board import board_of
from webhook.cli.status.report import report_of
from webhook.cli.status.table import to_table
from webhook.cli.terminal import complain
from webhook.cli.world_source import (
    ForbiddenError,
    Source,
    View,
    WorldError,
    choose_policy,
    follow,
    origin_of,
    read_once,
    seen,
)
from webhook.core.model.policy import Policy
from webhook.policy.problems import PolicyError, PolicyUnreadable
from webhook.server.settings import LiveCluster

SHOWN: Final = 0
NOT_READ: Final = 2

_PICTURE: Final = "·▁█"


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for; `interval_seconds` is None to look once."""

    policy: Path | None
    source: Source
    layout: Layout
    interval_seconds: float | None
    namespaces: tuple[str, ...] = ()


def run(order: Order) -> int:
    """Show the status, and give the exit status."""
    try:
        policy = choose_policy(order.policy, order.source)
        if order.interval_seconds is None:
            _show_once(order, policy)
        else:
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(_watch(order, policy, order.interval_seconds))
    except (PolicyError, PolicyUnreadable, WorldError) as error:
        for problem in error.problems if isinstance(error, PolicyError) else (error,):
            complain(problem)
        return NOT_READ
    return SHOWN


def _show_once(order: Order, policy: Policy) -> None:
    console = Console(stderr=True)
    with console.status("Reading") if console.is_terminal else nullcontext():
        view = _read(order, policy)
    view.coverage.tell()
    click.echo(_written(order, view), nl=False)  # rich hides standard output while it shows a status


def _read(order: Order, policy: Policy) -> View:
    return read_once(order.source, policy, namespaces=order.namespaces, keep_nodes=True)


async def _watch(order: Order, policy: Policy, interval_seconds: float) -> None:
    if isinstance(order.source, LiveCluster):
        with contextlib.suppress(ForbiddenError):  # what may be read in part is read again and again
            async with follow(order.source.kubeconfig, policy) as followed:
                while True:
                    _redraw(_written(order, View(followed.world), why_stale=followed.why_stale()))
                    await asyncio.sleep(interval_seconds)
    is_told = False
    while True:
        view = await asyncio.to_thread(_read, order, policy)
        if not is_told:
            view.coverage.tell()
            is_told = True
        _redraw(_written(order, view))
        await asyncio.sleep(interval_seconds)


def _redraw(text: str) -> None:
    """Draw over what was there on a terminal; in a pipe one picture follows another."""
    if sys.stdout.isatty():
        click.clear()
        text = "\n".join(text.splitlines()[: max(1, Console().size.height - 1)]) + "\n"
    click.echo(text, nl=False)
    sys.stdout.flush()


def _written(order: Order, view: View, *, why_stale: str | None = None) -> str:
    board, notes = board_of(view.world), view.coverage.notes()
    if not view.coverage.is_room_known:
        board = replace(board, free=())
    told = seen(origin_of(order.source), view.world)
    match order.layout:
        case Layout.JSON:
            return to_json(report_of(board, notes))
        case Layout.YAML:
            return to_yaml(report_of(board, notes))
        case Layout.TABLE | Layout.WIDE:
            return to_table(
                board,
                seen=told if why_stale is None else f"{told}\nSTALE: {why_stale}",
                width=columns(),
                is_colored=is_colored(),
                is_wide=order.layout is Layout.WIDE,
                is_plain=not _can_draw(),
                has_nodes=not view.coverage.lacks("nodes"),
            )


def _can_draw() -> bool:
    """Tell whether standard output knows the characters of the picture."""
    try:
        _PICTURE.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
