"""Plans of moves as text for terminals."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from webhook.cli.defragment.report import DefragmentReport, RefusedReport, RoomReport, hours_text
from webhook.cli.formatting import plural, plural_gpus
from webhook.cli.grid import Grid, number
from webhook.cli.screen import Screen
from webhook.cli.terminal import Line
from webhook.core.model.amount import parse_amount

_NAMES: Final = 3
"""Pods of a gang that are named."""


def to_table(report: DefragmentReport, *, source: str, width: int, is_colored: bool) -> str:
    """Return the plans, what is free before and after, and why pods stay, with the world's source below."""
    screen = Screen(width=width, is_colored=is_colored)
    moving = [room for room in report.rooms if room.moves]
    for room in moving:
        screen.show(Line(_headline(room), style="bold"), _moves(room), Line(_worth(room)), "")
    for each in report.refused:
        screen.show(Line(_refusal(each)))
    if report.more_waiting:
        noun = "pod or gang" if report.more_waiting == 1 else "pods or gangs"
        screen.show(f"no moves were sought for {report.more_waiting:,} more {noun}")
    if not (moving or report.refused):
        screen.show("no pod waits that moves of others could make room for")
    screen.show(*([""] if report.refused or not moving else []), *_free(report), "")
    screen.show(*(Line(line, style="dim") for line in _stays(report)))
    screen.show(*(Line(f"{move.pod} is being moved to {move.to}", style="yellow") for move in report.under_way))
    by_hand = "nothing was moved: evict the pods of a plan, and their controllers create them again"
    screen.show(f"the evictor moves pods {report.by_policy}" if report.by_policy else by_hand, Line(source))
    return screen.text


def _headline(room: RoomReport) -> str:
    nodes = Counter(place.node for place in room.places)
    where = ", ".join(nodes)
    moves = plural(len(room.moves), "move")
    return f"{_names([place.pod for place in room.places])}: {moves} would make room on {where}"


def _moves(room: RoomReport) -> Grid:
    grid = Grid("pod", "team", "tier", number("GPUs"), "from", "to", number("GPU-hours done again", goes=1))
    for move in room.moves:
        cells = (move.pod, move.team, move.tier, move.gpus, move.from_, move.to, hours_text(move.lost_gpu_hours))
        grid.add_row(*map(Line, cells))
    return grid


def _worth(room: RoomReport) -> str:
    cost = f"{hours_text(room.lost_gpu_hours)} GPU-hours of work would be done again"
    rest = "" if room.is_cheapest else "; the search was ended before it had tried everything"
    if room.waited_gpu_hours is None:
        return f"{cost}{rest}"
    verdict = "worth it" if room.is_worth_it else "not worth it yet"
    return f"{cost}, {hours_text(room.waited_gpu_hours)} GPU-hours were waited for: {verdict}{rest}"


def _refusal(each: RefusedReport) -> str:
    return f"{_names(each.pods)}: no moves for {plural_gpus(parse_amount(each.gpus))}: {each.why}"


def _names(pods: list[str]) -> str:
    shown = ", ".join(pods[:_NAMES])
    return shown if len(pods) <= _NAMES else f"{shown} and {len(pods) - _NAMES} more"


def _free(report: DefragmentReport) -> Iterator[Grid | str]:
    for resource in dict.fromkeys(each.resource for each in report.free):
        grid = Grid(number(f"{resource} free on a node"), number("nodes now"), number("after the moves"))
        for each in report.free:
            if each.resource == resource:
                grid.add_row(Line(str(each.free)), Line(str(each.nodes_now)), Line(str(each.nodes_after)))
        yield grid


def _stays(report: DefragmentReport) -> Iterator[str]:
    yield f"{plural(report.movable, 'pod')} may move"
    for each in sorted(report.stays, key=lambda each: -each.pods):
        yield f"{plural(each.pods, 'pod')} may not: {each.why}"
