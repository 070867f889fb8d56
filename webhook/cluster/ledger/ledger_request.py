"""Requests that wait for a ledger's writer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from webhook.core.model.decision import Decision
from webhook.core.model.names import Uid
from webhook.core.model.pod import NO_UID
from webhook.core.quota.in_flight import LedgerDecision

LedgerJudge = Callable[[], LedgerDecision]
"""Decides a request on the present world."""


@dataclass(slots=True, eq=False)
class LedgerRequest:
    """A request that waits for its decision.

    `admitted` is the decision with which a charge was drafted, and `charged` the UID that it is for. `is_kept`: its
    charge stays although the caller no longer waits, for the leader of then to use or end.
    """

    judge: LedgerJudge
    deadline: float
    is_gone: Callable[[], bool]
    answer: "asyncio.Future[Decision]"
    admitted: Decision | None = None
    charged: Uid = NO_UID
    is_kept: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the request was answered or cancelled."""
        return self.answer.done()
