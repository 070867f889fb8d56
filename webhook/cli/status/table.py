"""The status as tables for terminals: teams, nodes as a picture, what would fit now."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from rich.text import Text

from webhook.cli.grid import Column, Grid, Line, listing, number, prose
from webhook.cli.options import UNBOUNDED
from webhook.cli.screen import Screen
from webhook.cli.status.report import GpuPicture
from webhook.core.explain.node_rows import NodeRow
from webhook.core.explain.pod_rows import bypassed_text
from webhook.core.explain.team_rows import Board, DepartmentRow, MinimumRow, ModelRow, TeamRow
from webhook.core.model.amounts import GpuModel, ResourceName, Units, column_gpus, exact_units, format_limit, plural

_VENDORS: Final = ("NVIDIA-", "AMD-", "nvidia-", "amd-")
_LONG: Final = 10
"""Nodes beyond which their table has a total: free room below it has the same by model."""

MINIMUMS: Final = 20
_FEW: Final = 3
"""Workloads with a minimum that are shown, and how many on a screen that is too small for all."""

_HELD: Final = "reserved for waiting pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a status is drawn.

    `is_wide` adds teams' GPU models, the pods of each node, and the number of free nodes; `is_plain` is for terminals
    that support only ASCII. `has_node_rows`: nodes were read. `nodes`, `teams` and `minimums` are how many are shown;
    `more` says how to see the others.
    """

    width: int = UNBOUNDED
    is_colored: bool = False
    is_wide: bool = False
    is_plain: bool = False
    has_node_rows: bool = True
    nodes: int = sys.maxsize
    teams: int = sys.maxsize
    minimums: int = MINIMUMS
    more: str = ": --limit or -o json shows them"


def to_lines(board: Board, look: Look, *, source: str) -> list[str]:
    """Return the status as tables, with the world's source below."""
    screen = Screen(width=look.width, is_colored=look.is_colored)
    picture = GpuPicture([team.name for team in board.teams], is_plain=look.is_plain)
    screen.show(_teams(board, look), *_rest(len([*board.tree()]) - look.teams, "team", look), "")
    if board.nodes:
        shown = board.nodes[: look.nodes]
        screen.show(_nodes(board, shown, picture, look), *_rest(len(board.nodes) - len(shown), "node", look))
        screen.show(picture.legend(shown))
        if look.is_wide and len(pods := _pods(shown)):
            screen.show("", pods)
        if board.free:
            screen.show("", _free(board, is_wide=look.is_wide))
    elif look.has_node_rows:
        screen.show("no node has GPUs that the policy counts")
    if board.minimums:
        rest = _rest(len(board.minimums) - look.minimums, "workload", look)
        screen.show("", _minimums(board.minimums[: look.minimums]), *rest)
    notes = [each.text for each in board.unusual] + [each.text for each in board.idle]
    notes += filter(None, [bypassed_text(board.bypassed)])
    if notes:
        screen.show("", *[Line(text, style="yellow") for text in notes])
    screen.show("", *map(Line, source.split("\n")))
    return screen.lines


def to_screenful(board: Board, look: Look, height: int, *, source: str) -> list[str]:
    """Return as many nodes, and if need be teams, as leave room for the summary and the source below them."""
    lines = to_lines(board, look, source=source)
    if (over := len(lines) - height) <= 0:
        return lines
    if board.minimums[_FEW:]:
        look = replace(look, minimums=_FEW, more="")
        over = max(0, len(to_lines(board, look, source=source)) - height)
    nodes = board.nodes[: look.nodes]
    kept, rows = 0, sum(len(node.groups) for node in nodes) - over - 1
    while kept < len(nodes) and (rows := rows - len(nodes[kept].groups)) >= 0:
        kept += 1
    look = replace(look, nodes=kept, more="")
    lines = to_lines(board, look, source=source)
    if (over := len(lines) - height) <= 0:
        return lines
    look = replace(look, teams=max(1, len([*board.tree()]) - over - 1))
    return to_lines(board, look, source=source)[-height:]


def _rest(count: int, noun: str, look: Look) -> list[str]:
    return [f"+{plural(count, noun)}{look.more}"] if count > 0 else []


def _teams(board: Board, look: Look) -> Grid:
    """Return a table of teams, each below its department, whose name ends with a slash."""
    has_line = any(team.queued.pods or team.starting.pods for team in board.teams)
    has_idle = any(team.idle for team in board.teams)
    line = [number(name) for name, is_shown in (("unused", has_idle), ("queued", has_line)) if is_shown]
    blank = [Text()] * len(line)
    shares = number("guaranteed"), number("limit"), number("used"), number("preemptible")
    more = number("beyond share", goes=1), number("waiting", goes=1)
    table = Grid("team", *shares, *more, *line, listing("who holds", goes=2))
    for depth, row in islice(board.tree(), look.teams):
        indent = "  " * depth
        if isinstance(row, TeamRow):
            in_line = [*([_idle(row.idle)] if has_idle else []), *([_line(row)] if has_line else [])]
            table.add_row(Line(f"{indent}{row.name}"), *_numbers(row), *in_line, _holders(row))
        else:
            table.add_row(Line(f"{indent}{row.name}/", style="bold"), *_numbers(row), *blank, Text())
        for model in row.models if look.is_wide else ():
            table.add_row(Line(f"{indent}  {_short(model.model)}"), *_numbers(model), *blank, Text())
    if len(board.teams) > 1:
        fields = ("guaranteed", "used", "preemptible", "beyond_share", "waiting", "idle")
        sums = [exact_units(sum(getattr(team, each) for team in board.teams)) for each in fields]
        sums.append(exact_units(sum(team.queued.gpus for team in board.teams)))
        guaranteed, *held, idle, queued = (Line(column_gpus(each), style="bold") for each in sums)
        in_line = [*([idle] if has_idle else []), *([queued] if has_line else [])]
        table.add_row(Line("total", style="bold"), guaranteed, Text(), *held, *in_line, Text())
    return table


def _idle(gpus: Units) -> Text:
    return Line(column_gpus(gpus), style="yellow" if gpus else "")


def _line(team: TeamRow) -> Text:
    """Return what the team's queued pods ask for, and how many they are; those that are charged already apart."""
    queued, starting = team.queued, team.starting
    parts = [f"{column_gpus(queued.gpus)} ({plural(queued.pods, 'pod')})"] if queued.pods else []
    parts += [f"{plural(starting.pods, 'pod')} charged"] if starting.pods else []
    return Line(", ".join(parts) or "0", style="yellow" if parts else "")


def _holders(team: TeamRow) -> Text:
    return Line(", ".join(f"{holder} {column_gpus(gpus)}" for holder, gpus in team.holders) or "-")


def _numbers(row: TeamRow | DepartmentRow | ModelRow) -> list[Text]:
    is_full = not isinstance(row.limit, int) or row.used >= row.limit
    beyond, waiting = ("", "") if isinstance(row, ModelRow) else map(column_gpus, (row.beyond_share, row.waiting))
    return [
        Line(column_gpus(row.guaranteed)),
        Line(format_limit(row.limit)),
        Line(column_gpus(row.used), style="bold red" if is_full and isinstance(row.limit, int) else ""),
        Line(column_gpus(row.preemptible), style="yellow" if row.preemptible else ""),
        Line(beyond),
        Line(waiting, style="yellow" if waiting not in {"", "0"} else ""),
    ]


def _nodes(board: Board, shown: Sequence[NodeRow], picture: GpuPicture, look: Look) -> Grid:
    """Return a table of these nodes, with the sum of all."""
    has_kinds = look.is_wide or len({group.resource for node in board.nodes for group in node.groups}) > 1
    kinds = ["resource"] if has_kinds else []
    table = Grid("node", Column("model", goes=1), *kinds, "GPUs", number("used"), prose(""))
    for node in shown:
        for place, group in enumerate(node.groups):
            first = place == 0
            table.add_row(
                Line(node.name if first else ""),
                Line(_short(node.model) if first else ""),
                *([Line(_tail(group.resource))] if has_kinds else []),
                picture.group(group),
                Line(f"{group.used}/{group.pieces}"),
                Line(_state(node) if first else "", style="yellow"),
            )
    if len(board.nodes) > _LONG:
        for kind, (used, pieces) in _sums(board).items():
            resource = [Line(_tail(kind), style="bold")] if has_kinds else []
            of = Line(f"{used:,}/{pieces:,}", style="bold")
            table.add_row(Line("total", style="bold"), Text(), *resource, Text(), of, Text())
    return table


def _sums(board: Board) -> dict[ResourceName, tuple[int, int]]:
    """Return how many pieces of each resource are used, and how many there are."""
    sums: dict[ResourceName, tuple[int, int]] = {}
    for group in (group for node in board.nodes for group in node.groups):
        used, pieces = sums.get(group.resource, (0, 0))
        sums[group.resource] = used + group.used, pieces + group.pieces
    return sums


def _state(node: NodeRow) -> str:
    """Return why a node takes no pods, that it is held for some, or whose pods it rejects."""
    teams = ", ".join(sorted(each.team for each in node.rejecting))
    arriving = f", {plural(len(node.arriving), 'pod')} moving here" if node.arriving else ""
    others = (f"{_HELD}{arriving}" if node.is_held else "", f"rejects pods of {teams}" if teams else "")
    return node.state or "; ".join(filter(None, others))


def _pods(nodes: Iterable[NodeRow]) -> Grid:
    """Return a table of pods, with their nodes and pieces."""
    table = Grid("pod", Column("team", goes=2), "tier", "node", Column("resource", goes=1), number("pieces"))
    for node in nodes:
        for group in node.groups:
            sums: dict[tuple[str, str, str], int] = {}
            for allocation in (allocation for device in group.devices for allocation in device.allocations):
                key = (allocation.pod, str(allocation.team), str(allocation.tier))
                sums[key] = sums.get(key, 0) + allocation.pieces
            for key, pieces in sums.items():
                table.add_row(*map(Line, (*key, node.name, _tail(group.resource), str(pieces))))
    return table


def _minimums(rows: Iterable[MinimumRow]) -> Grid:
    """Return a table of workloads that are to keep some replicas."""
    numbers = (number(name) for name in ("minimum", "pods", "ready", "may go"))
    table = Grid("workload", Column("team", goes=1), *numbers, prose("", goes=2))
    for workload, team, found in rows:
        counts = (found.minimum, found.pods, found.ready, found.may_go)
        style = "yellow" if found.is_below else ""
        table.add_row(
            Line(workload),
            Line(team),
            *(Line(str(count)) for count in counts),
            Line(found.statement.text, style=style),
        )
    return table


def _free(board: Board, *, is_wide: bool) -> Grid:
    has_closed = is_wide or any(row.closed for row in board.free)
    has_held = any(row.held for row in board.free)
    more = (
        *([number("closed", goes=2)] if has_closed else []),
        *([number("reserved", goes=3)] if has_held else []),
        *([number("whole nodes", goes=1), prose("for teams")] if is_wide else []),
    )
    jobs = prose("largest job now"), prose("by reclaim")
    table = Grid("model", "resource", number("of"), number("free"), *jobs, *more)
    for row in board.free:
        table.add_row(
            Line(_short(row.model) or "-"),
            Line(_tail(row.resource)),
            Line(str(row.pieces)),
            Line(str(row.free)),
            Line(row.now_text),
            Line(row.reclaim_text),
            *([Line(str(row.closed))] if has_closed else []),
            *([Line(str(row.held))] if has_held else []),
            *([Line(str(row.whole_nodes)), Line(", ".join(row.claimants))] if is_wide else []),
        )
    return table


def _short(model: GpuModel) -> str:
    """Return a model without its vendor, because the column is narrow."""
    for vendor in _VENDORS:
        if model.startswith(vendor):
            return model.removeprefix(vendor)
    return model


def _tail(resource: ResourceName) -> str:
    return resource.rpartition("/")[2]
