"""Requests that wait for a ledger's writer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from webhook.core.model.decision import Decision
from webhook.core.model.names import Uid
from webhook.core.quota.in_flight import LedgerDecision

LedgerJudge = Callable[[], LedgerDecision]
"""Decides a request on the present world."""


@dataclass(slots=True, eq=False)
class LedgerRequest:
    """A request that waits for its decision. `charged` is the UID that may be charged before it was answered.

    `is_kept`: its charge stays although the caller no longer waits, for the leader of then to use or end.
    """

    judge: LedgerJudge
    deadline: float
    is_gone: Callable[[], bool]
    answer: "asyncio.Future[Decision]"
    charged: Uid | None = None
    is_kept: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the request was answered or cancelled."""
        return self.answer.done()


class AdmittedRequest(NamedTuple):
    """A request whose charge is assumed, and answered once it is written; `uid` is the charged pod's."""

    request: LedgerRequest
    decision: Decision
    uid: Uid
