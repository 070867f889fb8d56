"""An explanation as data: the stable format of `-o json` and `-o yaml`. Messages for people are in steps.py."""

from typing import Annotated

import msgspec

from webhook.cli.explain.subjects import Subject
from webhook.cli.explain.verdict import Outcome, verdict_of
from webhook.core.amount import format_gpus, format_limit
from webhook.core.candidates import Candidates
from webhook.core.demand import Demand
from webhook.core.explanation import Explanation, PoolStep
from webhook.core.forecast import WEIGHT, WHOLE
from webhook.core.reason import Reason
from webhook.core.tier import Tier


class ReasonReport(msgspec.Struct):
    """One reason, with its stable code."""

    code: str
    message: str


class LimitReport(msgspec.Struct, rename="camel"):
    """A limit, what counts towards it already, and whether the pod stays inside."""

    of: str
    limit: Annotated[str, msgspec.Meta(description="GPUs, or the word unlimited")]
    taken: str
    with_the_pod: str
    holds: bool


class HolderReport(msgspec.Struct):
    """Who holds GPUs of the team."""

    name: str
    gpus: str


class NodeReport(msgspec.Struct, rename="camel"):
    """A node that has room, the best first. Costs are GPUs; null where nothing is compared."""

    name: str
    cost: float | None
    useless: Annotated[
        float | None, msgspec.Meta(description="GPUs that pods to come lose, those that it takes included")
    ]
    mixing: Annotated[
        float | None, msgspec.Meta(description="for sharing a node with the other tier: more than all else together")
    ]
    left_over: Annotated[float | None, msgspec.Meta(description="for what would be left over: a tie-breaker")]


class FilteredReport(msgspec.Struct):
    """What keeps the pod off so many nodes."""

    cause: str
    nodes: int


class PoolReport(msgspec.Struct, rename="camel"):
    """A pool; `closed` says why the pod may not enter."""

    name: Annotated[str, msgspec.Meta(description="empty for the whole cluster, where policy has no pools")]
    closed: str | None
    with_room: int | None
    best: list[NodeReport]
    filtered: list[FilteredReport]


class ExplanationReport(msgspec.Struct, rename="camel"):
    """One decision, step by step."""

    subject: str
    count: int | None
    demand: dict[str, str]
    requests: dict[str, int]
    gpus: str
    team: str | None
    user: str | None
    outcome: Outcome
    tier: Tier | None
    nodes: list[str]
    reasons: list[ReasonReport]
    warnings: list[ReasonReport]
    limits: list[LimitReport]
    holders: list[HolderReport]
    pools: list[PoolReport]
    smaller: Annotated[dict[str, str] | None, msgspec.Meta(description="the largest lesser request that would run now")]
    elsewhere: Annotated[list[str], msgspec.Meta(description="pools in which it would run now")]


def report_of(subject: Subject, told: Explanation) -> ExplanationReport:
    """Say an explanation as data."""
    verdict = verdict_of(told.decision)
    gpus = told.pod.demand.gpus
    return ExplanationReport(
        subject=subject.title,
        count=subject.count,
        demand=_devices(told.pod.demand),
        requests={str(name): amount for name, amount in told.pod.demand.requests},
        gpus=format_gpus(gpus),
        team=None if told.team is None else told.team.name,
        user=told.user,
        outcome=verdict.outcome,
        tier=verdict.tier,
        nodes=list(verdict.nodes),
        reasons=[_reason(reason) for reason in verdict.reasons],
        warnings=[_reason(reason) for reason in verdict.warnings],
        limits=[
            LimitReport(
                bar.subject,
                format_limit(bar.limit),
                format_gpus(bar.taken),
                format_gpus(bar.taken + gpus),
                not bar.breaks(gpus),
            )
            for bar in told.limits
        ],
        holders=[HolderReport(name, format_gpus(held)) for name, held in told.holders],
        pools=[_pool(step) for step in told.pools],
        smaller=None if told.smaller is None else _devices(told.smaller),
        elsewhere=list(told.elsewhere),
    )


def _reason(reason: Reason) -> ReasonReport:
    return ReasonReport(reason.code, reason.text)


def _devices(demand: Demand) -> dict[str, str]:
    return {name: str(amount) for name, amount in demand.devices}


def _pool(step: PoolStep) -> PoolReport:
    if step.nodes is None:
        return PoolReport(step.pool.name, step.closed, None, [], [])
    filtered = [FilteredReport(str(cause), nodes) for cause, nodes in step.nodes.filtered]
    return PoolReport(step.pool.name, None, step.nodes.with_room, _nodes(step.nodes), filtered)


def _nodes(found: Candidates) -> list[NodeReport]:
    reports = []
    for name, cost in found.best:
        if cost is None:
            reports.append(NodeReport(name, None, None, None, None))
        else:
            left = cost.gpus_left + cost.cpu_left
            parts = (in_gpus(sum(cost)), in_gpus(cost.useless), in_gpus(cost.mixing), in_gpus(left))
            reports.append(NodeReport(name, *parts))
    return reports


def in_gpus(cost: int) -> float:
    """Write a cost as GPUs, to three places."""
    return round(cost / (WHOLE * WEIGHT), 3)
