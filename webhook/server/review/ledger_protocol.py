"""What a webhook needs of whoever keeps the charges: a ledger in the cluster, or one in memory."""

from collections.abc import Callable
from typing import Protocol

from webhook.core.model.decision import Decision
from webhook.core.quota.in_flight import LedgerDecision
from webhook.kube.admission.review import Review


class Ledger(Protocol):
    """Keeps what is charged."""

    @property
    def is_watched(self) -> bool:
        """Whether a watch will show the pods that are charged, with all that they carry."""
        ...

    async def commit(
        self, judge: Callable[[], LedgerDecision], *, deadline: float, is_gone: Callable[[], bool]
    ) -> Decision:
        """Have a pod judged and charge what is admitted by its UID, once however often it is asked.

        `judge` decides on the world as it is when it is called, at least once; what it admits is in the world before
        anything else is judged. It may be called again where another replica was faster; the last decision is returned,
        or a Retry where the charge could not be made in time. `deadline`, in the event loop's time, is when the caller
        stops listening, and `is_gone` returns whether the caller has left: nothing stays charged for it then.
        """
        ...

    def release(self, review: Review) -> None:
        """Release a pod that was deleted, where no watch would show it."""
        ...
