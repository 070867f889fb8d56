"""Results of a simulation as a table.

The results as data: the stable format of `-o json`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import msgspec

from webhook.addons.simulation.simulate.rounds import PolicyResult, Purchase
from webhook.addons.simulation.summary import Interval, Sample, Summary, UnstartedJobs, Waits, interval, over_rounds
from webhook.cli.grid import Column, Grid, Line, number
from webhook.cli.output import wait_text
from webhook.cli.screen import Screen
from webhook.core.model.amounts import plural


class GroupReport(msgspec.Struct, rename="camel"):
    """Jobs: pods, and gangs as one. Waits are in seconds until all of a job has started for the first time."""

    group: Annotated[str, msgspec.Meta(description="all, a team, or a number of GPUs")]
    jobs: Interval | None
    wait_p50: Annotated[Interval | None, msgspec.Meta(description="null where so many never started")]
    wait_p90: Interval | None
    wait_p99: Interval | None
    never_started: Annotated[Interval | None, msgspec.Meta(description="jobs, refused ones included")]
    refused: Annotated[Interval | None, msgspec.Meta(description="jobs that could never start, or were lost")]
    evictions: Annotated[Interval | None, msgspec.Meta(description="of pods")]
    gpu_hours: Annotated[Interval | None, msgspec.Meta(description="of work that was done")]
    lost_gpu_hours: Annotated[Interval | None, msgspec.Meta(description="of work that evictions lost")]


class PolicyReport(msgspec.Struct, rename="camel"):
    """What came of the load under one policy."""

    policy: str
    hash: Annotated[str, msgspec.Meta(description="of the policy, as servers report it")]
    gpus: float
    nodes: int
    seconds: Annotated[int, msgspec.Meta(description="from the first to the last arrival")]
    allocated: Annotated[Interval | None, msgspec.Meta(description="mean part of the GPUs that are in use")]
    fragmented: Annotated[Interval | None, msgspec.Meta(description="mean part of the free GPUs, while some are")]
    partly_held: Annotated[Interval | None, msgspec.Meta(description="mean part of the nodes that pods hold in part")]
    beyond_fewest: Annotated[
        Interval | None, msgspec.Meta(description="mean part of gangs' nodes beyond the fewest that could hold them")
    ]
    total: GroupReport
    teams: list[GroupReport]
    sizes: Annotated[list[GroupReport], msgspec.Meta(description="by GPUs of the whole job")]
    samples: Annotated[list[Sample], msgspec.Meta(description="of the first round")]
    refused: Annotated[list[UnstartedJobs], msgspec.Meta(description="for good, in the first round")]
    waiting: Annotated[list[UnstartedJobs], msgspec.Meta(description="not started at the end of the first round")]
    moves: Annotated[
        Interval | None, msgspec.Meta(description="pods moved to make room, which evictions count, too")
    ] = None


class PurchaseReport(msgspec.Struct, rename="camel"):
    """How many nodes make a wait short enough."""

    policy: str
    gpus_of_node: int
    model: str
    nodes: Annotated[int | None, msgspec.Meta(description="null where no number that was tried is enough")]
    tried: Annotated[dict[int, float | None], msgspec.Meta(description="the wait by nodes; null where it has no end")]


class SimulationReport(msgspec.Struct, rename="camel"):
    """The output of `fairgate simulate`."""

    version: Annotated[str, msgspec.Meta(description="of Fairgate")]
    rounds: int
    seed: Annotated[int, msgspec.Meta(description="of the first round; each further one has the next number")]
    policies: list[PolicyReport]
    purchases: list[PurchaseReport]
    notes: list[str]


def policy_report(result: PolicyResult) -> PolicyReport:
    """Return the rounds of a policy as data."""
    rounds = result.rounds
    first = rounds[0]
    return PolicyReport(
        policy=result.name,
        hash=result.hash,
        gpus=first.gpus,
        nodes=first.nodes,
        seconds=first.seconds,
        allocated=over_rounds(rounds, lambda each: each.allocated),
        fragmented=over_rounds(rounds, lambda each: each.fragmented),
        moves=over_rounds(rounds, lambda each: each.moves),
        partly_held=over_rounds(rounds, lambda each: each.partly_held),
        beyond_fewest=over_rounds(rounds, lambda each: each.beyond_fewest),
        total=_group([each.total for each in rounds]),
        teams=_groups(rounds, lambda each: each.teams),
        sizes=_groups(rounds, lambda each: each.sizes),
        samples=list(first.samples),
        refused=list(first.refused),
        waiting=list(first.waiting),
    )


def purchase_report(policy: str, found: Purchase) -> PurchaseReport:
    """Return a purchase as data."""
    return PurchaseReport(policy, found.kind.gpus, found.kind.model, found.nodes, dict(sorted(found.tried.items())))


def _groups(rounds: Sequence[Summary], of: Callable[[Summary], Sequence[Waits]]) -> list[GroupReport]:
    by_name: dict[str, list[Waits]] = {}
    for summary in rounds:
        for each in of(summary):
            by_name.setdefault(each.group, []).append(each)
    return [_group(found) for found in by_name.values()]


def _group(found: Sequence[Waits]) -> GroupReport:
    numbers = GroupReport.__struct_fields__[1:]
    return GroupReport(found[0].group, **{name: interval(getattr(each, name) for each in found) for name in numbers})


# The results as tables for terminals: the policies side by side, then the groups of each.


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
