"""The results as tables for terminals: the policies side by side, then the groups of each."""

from collections.abc import Iterator

from rich.table import Table

from webhook.cli.formatting import plural, span
from webhook.cli.screen import Screen, grid
from webhook.cli.simulate.results import GroupReport, PolicyReport, PurchaseReport, SimulationReport
from webhook.cli.terminal import Line
from webhook.simulation.summary import Interval

_MINUTE = 60
COLUMNS = ("jobs", "wait p50", "p90", "p99", "never started", "refused", "evictions", "lost GPU-hours")
_NUMBERS = tuple(f">{column}" for column in COLUMNS)


def to_table(report: SimulationReport, *, source: str, width: int, is_colored: bool) -> str:
    """Return the results as text of this width."""
    console = Screen(width=width, is_colored=is_colored)
    if report.policies:
        console.print(_side_by_side(report.policies))
    for each in report.policies:
        console.print("", Line(each.policy, style="bold"), sep="\n")
        console.print(_by_group(each))
        for text in unstarted_texts(each):
            console.print(Line(text), soft_wrap=not is_colored)
    for purchase in report.purchases:
        console.print("", Line(purchase_text(purchase)), sep="\n", soft_wrap=not is_colored)
        console.print(_tried(purchase))
    console.print("", Line(source), sep="\n", soft_wrap=not is_colored)
    for note in report.notes:
        console.print(Line(note), soft_wrap=not is_colored)
    return console.text


def wait_text(seconds: float) -> str:
    """Return a wait for a column."""
    if seconds < 1:
        return "0"
    return f"{round(seconds)}s" if seconds < 2 * _MINUTE else span(seconds)


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


def unstarted_texts(policy: PolicyReport) -> Iterator[str]:
    """Yield how many jobs were refused for good or had not started at the end, each with the reason of the first."""
    for what, found in (("refused", policy.refused), ("not started at the end", policy.waiting)):
        for each in found:
            yield f"{what}: {plural(each.jobs, 'job')}, the first of them {each.first}: {each.why}"


def _side_by_side(policies: list[PolicyReport]) -> Table:
    table = grid("policy", ">GPUs in use", ">fragmented", *_NUMBERS)
    for each in policies:
        parts = percent_cell(each.allocated), percent_cell(each.fragmented)
        table.add_row(*map(Line, (each.policy, *parts, *group_cells(each.total))))
    return table


def _by_group(policy: PolicyReport) -> Table:
    table = grid("", *_NUMBERS)
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


def _tried(found: PurchaseReport) -> Table:
    table = grid(">nodes bought", ">wait")
    for nodes, wait in found.tried.items():
        table.add_row(f"{nodes:,}", "never" if wait is None else wait_text(wait))
    return table
