"""Requests that wait for a ledger's writer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from webhook.core.model.decision import Decision
from webhook.core.model.names import Uid
from webhook.core.model.pod import NO_UID
from webhook.core.quota.in_flight import LedgerDecision

LedgerJudge = Callable[[], LedgerDecision]
"""Decides a request on the present world."""


class Asked(NamedTuple):
    """What a caller asks for, and until which time of the event loop; `is_gone` returns whether it has left.

    `is_kept`: the charge stays although the caller no longer waits, for the leader of then to use or end.
    """

    judge: LedgerJudge
    deadline: float
    is_gone: Callable[[], bool]
    is_kept: bool = False


@dataclass(slots=True, eq=False)
class LedgerRequest:
    """A request that waits for its answer.

    `admitted` is the decision with which a charge was drafted, and `charged` the UID that it is for. `is_sent`: it was
    written, or may have been.
    """

    asked: Asked
    answer: "asyncio.Future[Decision]"
    admitted: Decision | None = None
    charged: Uid = NO_UID
    is_sent: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the request was answered or cancelled."""
        return self.answer.done()
