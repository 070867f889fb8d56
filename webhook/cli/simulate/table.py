"""The results as tables for terminals: the policies side by side, then the groups of each."""

from collections.abc import Iterator

from webhook.cli.formatting import plural, wait_text
from webhook.cli.grid import Column, Grid, number
from webhook.cli.screen import Screen
from webhook.cli.simulate.results import GroupReport, PolicyReport, PurchaseReport, SimulationReport
from webhook.cli.terminal import Line
from webhook.simulation.summary import Interval

COLUMNS = ("jobs", "wait p50", "p90", "p99", "never started", "refused", "evictions", "lost GPU-hours")
_GOES = {"fragmented": 1, "refused": 2, "lost GPU-hours": 3, "GPUs in use": 4, "p99": 5}
"""The order in which columns are left out on a narrow terminal."""


def to_table(report: SimulationReport, *, source: str, width: int, is_colored: bool) -> str:
    """Return the results as text of this width."""
    screen = Screen(width=width, is_colored=is_colored)
    if report.policies:
        screen.show(_side_by_side(report.policies))
    for each in report.policies:
        screen.show(
            "",
            Line(each.policy, style="bold"),
            _by_group(each),
            Line(nodes_text(each)),
            *map(Line, unstarted_texts(each)),
        )
        if each.moves is not None and each.moves.mean:
            screen.show(f"moved to make room: {number_cell(each.moves)} pods, which evictions count, too")
    for purchase in report.purchases:
        screen.show("", Line(purchase_text(purchase)), _tried(purchase))
    screen.show("", Line(source), *map(Line, report.notes))
    return screen.text


def wait_cell(found: Interval | None) -> str:
    """Return a wait with its margin."""
    if found is None:
        return "never"
    return wait_text(found.mean) + ("" if not found.margin else f" ±{wait_text(found.margin)}")


def number_cell(found: Interval | None) -> str:
    """Return a count with its margin."""
    if found is None:
        return "-"
    return f"{found.mean:,.0f}" + ("" if not found.margin else f" ±{found.margin:,.0f}")


def percent_cell(found: Interval | None) -> str:
    """Return a part in percent with its margin."""
    if found is None:
        return "-"
    return f"{found.mean:.1%}" + ("" if not found.margin else f" ±{found.margin:.1%}")


def group_cells(group: GroupReport) -> list[str]:
    """Return the cells of a group, in the order of the columns."""
    waits = (group.wait_p50, group.wait_p90, group.wait_p99)
    counts = (group.never_started, group.refused, group.evictions, group.lost_gpu_hours)
    return [number_cell(group.jobs), *map(wait_cell, waits), *map(number_cell, counts)]


def nodes_text(policy: PolicyReport) -> str:
    """Return how far pods and gangs were spread over nodes."""
    return (
        f"nodes held in part: {percent_cell(policy.partly_held)} of the nodes; "
        f"beyond the fewest that gangs need: {percent_cell(policy.beyond_fewest)} of their nodes"
    )


def unstarted_texts(policy: PolicyReport) -> Iterator[str]:
    """Yield how many jobs were refused for good or had not started at the end, each with the reason of the first."""
    for what, found in (("refused", policy.refused), ("not started at the end", policy.waiting)):
        for each in found:
            yield f"{what}: {plural(each.jobs, 'job')}, the first of them {each.first}: {each.why}"


def _side_by_side(policies: list[PolicyReport]) -> Grid:
    table = Grid("policy", *map(_column, ("GPUs in use", "fragmented", *COLUMNS)))
    for each in policies:
        parts = percent_cell(each.allocated), percent_cell(each.fragmented)
        table.add_row(*map(Line, (each.policy, *parts, *group_cells(each.total))))
    return table


def _by_group(policy: PolicyReport) -> Grid:
    table = Grid("", *map(_column, COLUMNS))
    for each in policy.teams:
        table.add_row(*map(Line, (f"team {each.group}", *group_cells(each))))
    for each in policy.sizes:
        table.add_row(*map(Line, (f"GPUs {each.group}", *group_cells(each))))
    return table


def purchase_text(found: PurchaseReport) -> str:
    """Return how many nodes to buy."""
    kind = f"{found.gpus_of_node} {found.model}"
    if found.nodes is None:
        return f"{found.policy}: no number of nodes of {kind} that was tried makes the wait short enough"
    if not found.nodes:
        return f"{found.policy}: the wait is short enough without more nodes of {kind}"
    gpus = plural(found.nodes * found.gpus_of_node, "GPU")
    return f"{found.policy}: buy {plural(found.nodes, 'node')} of {kind}: {gpus}"


def _tried(found: PurchaseReport) -> Grid:
    table = Grid(number("nodes bought"), number("wait"))
    for nodes, wait in found.tried.items():
        table.add_row(Line(f"{nodes:,}"), Line("never" if wait is None else wait_text(wait)))
    return table


def _column(heading: str) -> Column:
    return number(heading, goes=_GOES.get(heading, 0))
