"""The status as tables for terminals: teams, nodes as a picture, what would fit now."""

from typing import Final

from rich.table import Table
from rich.text import Text

from webhook.cli.formatting import column_gpus, plural
from webhook.cli.screen import Screen, grid
from webhook.cli.status.gpu_picture import GpuPicture
from webhook.cli.terminal import Line
from webhook.core.explain.board import Board, DepartmentRow, ModelRow, NodeRow, TeamRow
from webhook.core.model.amount import format_limit
from webhook.core.model.names import GpuModel, ResourceName

_VENDORS: Final = ("NVIDIA-", "AMD-", "nvidia-", "amd-")
_ROOM_FOR_HOLDERS: Final = 100
_HELD: Final = "held for waiting pods"


def to_table(
    board: Board,
    *,
    source: str,
    width: int,
    is_colored: bool,
    is_wide: bool = False,
    is_plain: bool = False,
    has_nodes: bool = True,
) -> str:
    """Return the status as tables of this width, with the world's source below; `has_nodes`: nodes were read.

    `is_wide` adds teams' GPU models, the pods of each node, and the number of free nodes.
    """
    console = Screen(width=width, is_colored=is_colored)
    picture = GpuPicture([team.name for team in board.teams], is_plain=is_plain)
    console.print(_teams(board, is_wide=is_wide, has_room=width >= _ROOM_FOR_HOLDERS), "")
    if board.nodes:
        console.print(_nodes(board, picture, is_wide=is_wide))
        console.print(picture.legend(), soft_wrap=not is_colored)
        if is_wide and (pods := _pods(board)).row_count:
            console.print("", pods, sep="\n")
        if board.free:
            console.print("", _free(board, is_wide=is_wide), sep="\n")
    elif has_nodes:
        console.print("no node has GPUs that the policy counts")
    if board.unusual:
        console.print("", *[Line(each.text, style="yellow") for each in board.unusual], sep="\n")
    console.print("", *map(Line, source.split("\n")), sep="\n", soft_wrap=not is_colored)
    return console.text


def _teams(board: Board, *, is_wide: bool, has_room: bool) -> Table:
    """Return a table of teams, each below its department, whose name ends with a slash."""
    has_line = any(team.queued for team in board.teams)
    line, blank = ([">in line"], [""]) if has_line else ([], [])
    table = grid("team", ">guaranteed", ">limit", ">used", ">borrowed", ">waiting", *line, "who holds")
    for depth, row in board.tree():
        indent = "  " * depth
        if isinstance(row, TeamRow):
            numbers = [*_numbers(row), *([_line(row)] if has_line else [])]
            table.add_row(Line(f"{indent}{row.name}"), *numbers, _holders(row, is_listed=has_room or is_wide))
        else:
            table.add_row(Line(f"{indent}{row.name}/", style="bold"), *_numbers(row), *blank, "")
        for model in row.models if is_wide else ():
            table.add_row(Line(f"{indent}  {_short(model.model)}"), *_numbers(model), *blank, "")
    return table


def _line(team: TeamRow) -> Text:
    """Return what the team's pods in line ask for, and how many they are."""
    if not team.queued:
        return Line("0")
    return Line(f"{column_gpus(team.queued_gpus)} ({plural(team.queued, 'pod')})", style="yellow")


def _holders(team: TeamRow, *, is_listed: bool) -> Text:
    holders = [f"{holder} {column_gpus(gpus)}" for holder, gpus in team.holders]
    listed = [", ".join(holders)] if is_listed else holders[:2]
    return Text("\n").join(map(Line, listed)) if holders else Line("-")


def _numbers(row: TeamRow | DepartmentRow | ModelRow) -> list[Text]:
    is_full = not isinstance(row.limit, int) or row.used >= row.limit
    borrowed = row.used - row.used_guaranteed if isinstance(row, ModelRow) else row.borrowed
    waiting = "" if isinstance(row, ModelRow) else column_gpus(row.waiting)
    return [
        Line(column_gpus(row.guaranteed)),
        Line(format_limit(row.limit)),
        Line(column_gpus(row.used), style="bold red" if is_full and isinstance(row.limit, int) else ""),
        Line(column_gpus(borrowed), style="yellow" if borrowed else ""),
        Line(waiting, style="yellow" if waiting not in {"", "0"} else ""),
    ]


def _nodes(board: Board, picture: GpuPicture, *, is_wide: bool) -> Table:
    has_kinds = is_wide or len({group.resource for node in board.nodes for group in node.groups}) > 1
    table = grid("node", "model", *(["resource"] if has_kinds else []), "GPUs", ">used", "")
    for node in board.nodes:
        for number, group in enumerate(node.groups):
            first = number == 0
            table.add_row(
                Line(node.name if first else ""),
                Line(_short(node.model) if first else ""),
                *([Line(_tail(group.resource))] if has_kinds else []),
                picture.group(group),
                Line(f"{group.used}/{group.pieces}"),
                Line(_state(node) if first else "", style="yellow"),
            )
    return table


def _state(node: NodeRow) -> str:
    """Return why a node takes no pods, that it is held for some, or whose pods it rejects."""
    teams = ", ".join(sorted(each.team for each in node.rejecting))
    others = (_HELD if node.is_held else "", f"rejects pods of {teams}" if teams else "")
    return node.state or "; ".join(filter(None, others))


def _pods(board: Board) -> Table:
    """Return a table of pods, with their nodes and pieces."""
    table = grid("pod", "team", "tier", "node", "resource", ">pieces")
    for node in board.nodes:
        for group in node.groups:
            sums: dict[tuple[str, str, str], int] = {}
            for allocation in (allocation for device in group.devices for allocation in device.allocations):
                key = (allocation.pod, str(allocation.team), str(allocation.tier))
                sums[key] = sums.get(key, 0) + allocation.pieces
            for key, pieces in sums.items():
                table.add_row(*map(Line, (*key, node.name, _tail(group.resource), str(pieces))))
    return table


def _free(board: Board, *, is_wide: bool) -> Table:
    has_closed = is_wide or any(row.closed for row in board.free)
    has_held = any(row.held for row in board.free)
    more = (
        *([">closed"] if has_closed else []),
        *([">held"] if has_held else []),
        *([">whole nodes"] if is_wide else []),
    )
    table = grid("model", "resource", ">of", ">free", "largest job now", "by reclaim", *more)
    for row in board.free:
        table.add_row(
            Line(_short(row.model) or "-"),
            Line(_tail(row.resource)),
            Line(str(row.pieces)),
            Line(str(row.free)),
            Line(_job(row.at_once, row.largest)),
            Line(_job(row.guaranteed_at_once, row.guaranteed_pod)),
            *([Line(str(row.closed))] if has_closed else []),
            *([Line(str(row.held))] if has_held else []),
            *([Line(str(row.whole_nodes))] if is_wide else []),
        )
    return table


def _job(at_once: int, largest: int) -> str:
    return f"{plural(at_once, 'pod')} of {largest}" if largest else "none"


def _short(model: GpuModel) -> str:
    """Return a model without its vendor, because the column is narrow."""
    for vendor in _VENDORS:
        if model.startswith(vendor):
            return model.removeprefix(vendor)
    return model


def _tail(resource: ResourceName) -> str:
    return resource.rpartition("/")[2]
