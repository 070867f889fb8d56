"""Evicts one pod through the Eviction API, and returns the outcome without HTTP terms."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import Final

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError, ClusterError
from webhook.core.reclaim.reservation import Target
from webhook.kube.reclaim.holds import deletion, disruption_patch, eviction

TRIES: Final = 3
"""How often an eviction without an answer is sent: the UID makes a second one harmless."""

SECONDS: Final = 20.0
"""How long one eviction may take: the API server alone retries conflicts for 10 s."""

LATER_SECONDS: Final = 2.0
"""When to try again where the API server gives no time."""

_STRATEGIC: Final = "application/strategic-merge-patch+json"

_BY_BUDGETS: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR)
"""What the API server answers where a budget is used up or not counted yet, or where there are several."""


class Evicted(Enum):
    """Success: the pod is evicted (or would be), or deleted past its budgets, or was gone before."""

    ACCEPTED = auto()
    DELETED = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True)
class Refused:
    """The pod is not evicted: another victim must be chosen."""

    why: str


@dataclass(frozen=True, slots=True)
class Later:
    """Nothing is known yet, or the API server asked for a retry: the same victim, after so many seconds."""

    why: str
    seconds: float


Outcome = Evicted | Refused | Later


async def evict(connection: ApiConnection, target: Target, *, is_trial: bool = False) -> Outcome:
    """Evict a pod, or only check whether that is allowed; never another pod of the same name.

    Where its budgets do not allow it, and do not count any more, it is deleted, with the condition of an evicted pod.
    """
    path = f"/api/v1/namespaces/{target.namespace}/pods/{target.name}"
    method, action, where = "POST", "create pods/eviction", f"{path}/eviction"
    body, worked = eviction(target, is_trial=is_trial), Evicted.ACCEPTED
    failures = 0
    while True:
        try:
            await connection.send(method, where, body, action=action, seconds=SECONDS)
        except ApiError as error:
            if not (worked is Evicted.ACCEPTED and target.is_past_budgets and error.status in _BY_BUDGETS):
                return _explain(error)
            if not is_trial:
                await _mark_disrupted(connection, target, path)
            method, action, where = "DELETE", "delete pods", path
            body, worked = deletion(target, is_trial=is_trial), Evicted.DELETED
        except ClusterError as error:
            failures += 1
            if failures == TRIES:
                return Later(str(error), LATER_SECONDS)
            await asyncio.sleep(LATER_SECONDS / 10)
        else:
            return worked


async def _mark_disrupted(connection: ApiConnection, target: Target, path: str) -> None:
    """Set the condition of a disruption on a pod; where that fails, its Job counts a failure, and nothing else."""
    body, action = disruption_patch(target), "patch pods/status"
    with suppress(ClusterError):
        await connection.send("PATCH", f"{path}/status", body, action=action, content_type=_STRATEGIC)


def _explain(error: ApiError) -> Outcome:
    match error.status:
        case HTTPStatus.NOT_FOUND:
            return Evicted.GONE
        case HTTPStatus.CONFLICT:
            # It changed faster than the API server could retry; or another pod has its name, which the watch will show.
            return Later(str(error), LATER_SECONDS)
        case HTTPStatus.TOO_MANY_REQUESTS if error.retry_after_seconds:
            return Later(str(error), error.retry_after_seconds)  # its budget is not counted yet, or the server is busy
        case _:
            return Refused(str(error))  # 429: its budget is used up; 500: two budgets; 403: a policy of the cluster
