"""Whether a workload survives the eviction of some of its pods, by its manifest."""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from webhook.core.reclaim.failures import FailureBudget
from webhook.kube.admission.job_review import ReviewedJob, gets_rule
from webhook.kube.kinds.budget import Budget
from webhook.kube.kinds.job_failures import Job, job_budget
from webhook.kube.kinds.kind_row import Row
from webhook.kube.kinds.model import SURVIVES, EvictionEffect, Json
from webhook.kube.objects import objects

_Kind = TypeVar("_Kind")

_AT_ONCE: Final = "it fails with its first evicted pod"
_NO_LIMIT: Final = 2**31 - 1
"""The backoffLimit that means no limit: JobSet's documentation recommends it for in-place restarts."""


def eviction_effect(document: Json, row: Row, budget: Budget) -> EvictionEffect:
    """Return the effect of evictions on an object of a row's kind."""
    if row.jobs is not None:
        return _of_jobs(list(row.jobs(document, budget)))
    if row.fails:
        return EvictionEffect(always=row.fails)
    if row.failures is None:
        return SURVIVES
    found = _converted(document, row.failures.item)
    fails = found is not None and row.failures.budget(found) is not None
    return EvictionEffect(always=_AT_ONCE) if fails else SURVIVES


def _of_jobs(jobs: list[tuple[Json, str]]) -> EvictionEffect:
    """Return the effect on Jobs, each given with its default restartPolicy."""
    without_rule = ""
    for document, default in jobs:
        job, reviewed = _converted(document, Job), _converted(document, ReviewedJob)
        if job is None or reviewed is None:
            continue
        budget = job_budget(job)
        if budget is None or budget.limit >= _NO_LIMIT:
            continue
        if not gets_rule(reviewed, restart_policy=default):
            return EvictionEffect(always=_described(budget))
        without_rule = without_rule or _described(budget)
    return EvictionEffect(without_rule=without_rule)


def _described(budget: FailureBudget) -> str:
    if budget.limit == 0:
        return _AT_ONCE
    return f"it fails after more than {budget.limit} evicted pods"


def _converted(document: Mapping[str, object], what: type[_Kind]) -> _Kind | None:
    """Convert an object; None if it is malformed, which the API server reports."""
    try:
        return msgspec.convert({"metadata": {}, **document}, what)
    except objects.UNREADABLE:
        return None
