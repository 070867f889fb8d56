"""The ledger of a world without a cluster: in memory, with the sums of the world only."""

from collections.abc import Callable
from dataclasses import dataclass

from webhook.core.model.decision import Decision, Retry
from webhook.core.model.reason import Code, Reason
from webhook.core.quota.in_flight import LedgerDecision
from webhook.core.world.waiting_pods import WaitingPod
from webhook.core.world.world import World
from webhook.kube.admission.review import Review
from webhook.kube.pod.pods import uid_of

_TOO_LATE = Retry(Reason(Code.RACE_LOST, "the caller's time was up before the charge: try again"))


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """Charges in memory: an admitted pod exists from then on, until its deletion is reviewed."""

    world: World
    clock: Callable[[], float]

    @property
    def is_watched(self) -> bool:
        """No watch will show the pods that are charged here."""
        return False

    async def commit(
        self, judge: Callable[[], LedgerDecision], *, deadline: float, is_gone: Callable[[], bool]
    ) -> Decision:
        """Judge and charge at once: there are no other replicas, but the caller may have left."""
        judged = judge()
        if judged.flight is not None:
            if self.clock() >= deadline or is_gone():
                return _TOO_LATE
            self.world.add_pod(judged.flight)
        return judged.decision

    def enter_line(self, waiting: WaitingPod) -> None:
        """Keep a pod in line until its deletion is reviewed: no leader releases it."""
        self.world.set_waiting(waiting)

    def release(self, review: Review) -> None:
        """Release the charge of a deleted pod."""
        if review.old_pod is not None:
            metadata = review.old_pod.metadata
            uid = uid_of(metadata, review.namespace)
            self.world.remove_pod(uid)
