"""The results as data: the stable format of `-o json`."""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from webhook.cli.simulate.rounds import PolicyResult, Purchase
from webhook.simulation.series import Sample
from webhook.simulation.summary import Interval, Summary, UnstartedJobs, Waits, interval, over_rounds


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
