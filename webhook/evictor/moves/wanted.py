"""A waiting pod that room is sought for, as the evictor sees it."""

from dataclasses import dataclass

from webhook.core.defragment.move_plan import Target
from webhook.core.model.names import Uid
from webhook.core.reclaim.reclaim_pod import ReclaimPod
from webhook.core.world.waiting_pods import WaitingPod


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod that room is sought for. `gpu_pod` is set for one in kube-scheduler, `waiting` for one in line."""

    target: Target
    gpu_pod: ReclaimPod | None = None
    waiting: WaitingPod | None = None

    @property
    def uid(self) -> Uid:
        """Its UID."""
        found = self.gpu_pod or self.waiting
        return Uid("") if found is None else found.uid
