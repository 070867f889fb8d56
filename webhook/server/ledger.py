"""The ledger of one process, kept in memory: the world's own books.

In embedded mode it is the whole truth, and an admitted pod exists from then on. Beside a live cluster the watch
confirms what was charged, and what it never shows is forgotten in time.
"""

from collections.abc import Callable
from dataclasses import dataclass

from webhook.core.decision import Retry
from webhook.core.names import Uid
from webhook.core.reason import Code, Reason
from webhook.core.world import ASSUMED_SECONDS, World
from webhook.kube.pods import stand_in_uid
from webhook.kube.review import Review
from webhook.server.gate import Claim

_TOO_LATE = Retry(Reason(Code.RACE_LOST, "the caller's time was up before the charge: try again"))


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """Charges in memory; `is_embedded` says that no cluster will ever confirm a pod."""

    world: World
    clock: Callable[[], float]
    is_embedded: bool

    async def commit(self, claim: Claim, *, deadline: float) -> Retry | None:
        """Charge a pod at once; there is nobody to lose a race to, but a caller may have gone."""
        now = self.clock()
        if now >= deadline:
            return _TOO_LATE
        forget_at = None if self.is_embedded else now + ASSUMED_SECONDS
        self.world.assume(claim.pod, claim.charge, node=claim.node, forget_at=forget_at)
        return None

    def release(self, review: Review) -> None:
        """Free what a deleted pod held, in embedded mode; with a cluster the watch tells: a DELETE may yet fail."""
        if self.is_embedded and review.old_pod is not None:
            metadata = review.old_pod.metadata
            uid = Uid(metadata.uid) if metadata.uid else stand_in_uid(review.namespace, metadata.name)
            self.world.remove_pod(uid)
