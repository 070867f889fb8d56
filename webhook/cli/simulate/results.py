"""The results as data: the stable format of `-o json`."""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from webhook.cli.simulate.rounds import PolicyResult, Purchase
from webhook.simulation.series import Sample
from webhook.simulation.summary import Interval, Summary, Waits, interval, over_rounds

_DIGITS = 4


class IntervalReport(msgspec.Struct):
    """A mean over the rounds."""

    mean: float
    margin: Annotated[float | None, msgspec.Meta(description="for 95 % confidence; null for a single round")]


class GroupReport(msgspec.Struct, rename="camel"):
    """Jobs: pods, and gangs as one. Waits are in seconds until all of a job has started for the first time."""

    group: Annotated[str, msgspec.Meta(description="all, a team, or a number of GPUs")]
    jobs: IntervalReport | None
    wait_p50: Annotated[IntervalReport | None, msgspec.Meta(description="null where so many never started")]
    wait_p90: IntervalReport | None
    wait_p99: IntervalReport | None
    never_started: Annotated[IntervalReport | None, msgspec.Meta(description="jobs, refused ones included")]
    refused: Annotated[IntervalReport | None, msgspec.Meta(description="jobs that could never start, or were lost")]
    evictions: Annotated[IntervalReport | None, msgspec.Meta(description="of pods")]
    gpu_hours: Annotated[IntervalReport | None, msgspec.Meta(description="of work that was done")]
    lost_gpu_hours: Annotated[IntervalReport | None, msgspec.Meta(description="of work that evictions lost")]


class RefusedReport(msgspec.Struct, rename="camel"):
    """Jobs of the first round that were refused for good with the same codes."""

    codes: list[str]
    jobs: int
    first: Annotated[str, msgspec.Meta(description="the name of the first of them")]
    why: Annotated[str, msgspec.Meta(description="why the first of them was refused")]


class PolicyReport(msgspec.Struct, rename="camel"):
    """What came of the load under one policy."""

    policy: str
    gpus: float
    nodes: int
    seconds: Annotated[int, msgspec.Meta(description="from the first to the last arrival")]
    allocated: Annotated[IntervalReport | None, msgspec.Meta(description="mean part of the GPUs that are in use")]
    fragmented: Annotated[IntervalReport | None, msgspec.Meta(description="mean part of the free GPUs, while some are")]
    total: GroupReport
    teams: list[GroupReport]
    sizes: Annotated[list[GroupReport], msgspec.Meta(description="by GPUs of the whole job")]
    samples: Annotated[list[Sample], msgspec.Meta(description="of the first round")]
    refused: list[RefusedReport]


class PurchaseReport(msgspec.Struct, rename="camel"):
    """How many nodes make a wait short enough."""

    policy: str
    gpus_of_node: int
    model: str
    nodes: Annotated[int | None, msgspec.Meta(description="null where no number that was tried is enough")]
    tried: Annotated[dict[int, float | None], msgspec.Meta(description="the wait by nodes; null where it has no end")]


class SimulationReport(msgspec.Struct, rename="camel"):
    """The output of `fairgate simulate`."""

    rounds: int
    seed: int
    policies: list[PolicyReport]
    purchases: list[PurchaseReport]
    notes: list[str]


def policy_report(result: PolicyResult) -> PolicyReport:
    """Return the rounds of a policy as data."""
    rounds = result.rounds
    first = rounds[0]
    return PolicyReport(
        result.name,
        first.gpus,
        first.nodes,
        first.seconds,
        _report(over_rounds(rounds, lambda each: each.allocated)),
        _report(over_rounds(rounds, lambda each: each.fragmented)),
        _group([each.total for each in rounds]),
        _groups(rounds, lambda each: each.teams),
        _groups(rounds, lambda each: each.sizes),
        list(first.samples),
        [RefusedReport(list(each.codes), each.jobs, each.first, each.why) for each in first.refused],
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
    def over(value: Callable[[Waits], float | None]) -> IntervalReport | None:
        return _report(interval(map(value, found)))

    return GroupReport(
        found[0].group,
        over(lambda each: each.jobs),
        over(lambda each: each.p50),
        over(lambda each: each.p90),
        over(lambda each: each.p99),
        over(lambda each: each.never),
        over(lambda each: each.refused),
        over(lambda each: each.evictions),
        over(lambda each: each.gpu_hours),
        over(lambda each: each.lost_gpu_hours),
    )


def _report(found: Interval | None) -> IntervalReport | None:
    if found is None:
        return None
    return IntervalReport(round(found.mean, _DIGITS), None if found.margin is None else round(found.margin, _DIGITS))
