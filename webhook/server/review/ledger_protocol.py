"""The ledger as the reviewer needs it: in the cluster, or in memory."""

from collections.abc import Callable
from typing import Protocol

from webhook.core.model.decision import Decision
from webhook.core.quota.in_flight import LedgerDecision
from webhook.core.world.waiting_pods import WaitingPod
from webhook.kube.admission.review import Review


class Ledger(Protocol):
    """Stores charges."""

    @property
    def is_watched(self) -> bool:
        """Whether a watch will show the pods that are charged, with all of their fields."""
        ...

    async def commit(
        self, judge: Callable[[], LedgerDecision], *, deadline: float, is_gone: Callable[[], bool]
    ) -> Decision:
        """Judge a pod and charge it by its UID if it is admitted, once for any number of calls.

        `judge` decides on the present world. It is called at least once, and again if another replica was faster; what
        it admits is in the world before anything else is judged. The last decision is returned, or a Retry where the
        charge could not be made in time. `deadline`, in the event loop's time, is when the caller
        gives up, and `is_gone` returns whether the caller has left: nothing stays charged for it then.
        """
        ...

    def enter_line(self, waiting: WaitingPod) -> None:
        """Count a pod that was let into its team's line, until a watch shows it or its deletion is reviewed."""
        ...

    def release(self, review: Review) -> None:
        """Release a pod that was deleted, where no watch would show it."""
        ...
