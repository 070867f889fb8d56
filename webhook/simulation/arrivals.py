"""Pods that are created: each gets the decision of the webhook, and starts, waits or is refused by it."""

from collections.abc import Callable
from typing import Final

from webhook.core.admission.admission import admit
from webhook.core.admission.assessment import assess
from webhook.core.admission.queueing import reasons_never_to_start
from webhook.core.model.decision import Admit, Charge, Deny, NotApplicable, Queue, Retry
from webhook.core.model.names import Uid
from webhook.core.model.pod import CONTROLLER, Requester
from webhook.core.model.reason import LIMITS, NO_ROOM, Code
from webhook.core.model.tier import Tier
from webhook.core.world.waiting_pods import WaitingPod
from webhook.simulation.cluster import PodOf, SimulatedCluster
from webhook.simulation.refused_pods import RefusedPods
from webhook.simulation.runs import Runs
from webhook.simulation.task import Refusals, Settings, TaskState

_TRIED_AGAIN: Final = LIMITS | NO_ROOM | {Code.QUEUE_FULL}
"""The codes of refusals that end when other pods end or start."""

GANG_LOOKS: Final = (1, 3, 9)
"""Seconds after a change at which the queue is looked at again while gangs wait: some rest after a judgment."""


class Arrivals:
    """Creates pods. `queued` wait in line, `refused` are those that their controllers create again.

    `created` and `joined` count the pods that were created, and those that were put in line. `look_at` is called with
    times at which the line is to be looked at.
    """

    def __init__(
        self, cluster: SimulatedCluster, runs: Runs, settings: Settings, *, look_at: Callable[[int], None]
    ) -> None:
        self.refused = RefusedPods()
        self._cluster = cluster
        self._world = cluster.world
        self._runs = runs
        self._settings = settings
        self._look_at = look_at
        self.queued: dict[Uid, PodOf] = {}
        self.created = 0
        self.joined = 0
        self._released = 0
        self._seen = self._room_changes

    def create(self, pod_of: PodOf) -> None:
        """Create a pod."""
        self.created += 1
        pod_of.record.state = TaskState.WAITING
        if not self._decide(pod_of):
            pod_of.record.refusals += 1
            self.refused.add(pod_of)

    def retry(self) -> bool:
        """Create refused pods again if a pod ended or left the line since; return whether any was not refused."""
        if not len(self.refused) or self._seen == self._room_changes:
            return False
        self._seen = self._room_changes
        return self.refused.retry(self._decide)

    def release(self, uid: Uid, admitted: Admit) -> None:
        """Take the gate of a pod that was released from the queue."""
        pod_of = self.queued.pop(uid)
        self._released += 1
        nodes = admitted.node_choice.nodes
        self._start(pod_of, admitted, fits=bool(nodes) and self._cluster.has_room_for_promise(uid, nodes[0], admitted))

    @property
    def _room_changes(self) -> tuple[int, int]:
        """What may have made room on nodes, under limits or in line."""
        return self._cluster.changes, self._released

    def _decide(self, pod_of: PodOf) -> bool:
        """Create a pod by the decision of the webhook; return False where it is refused for now."""
        task, world = pod_of.record.task, self._world
        if not world.policy.is_enforced:
            self._pass_by(pod_of, Charge(task.team, Tier.PREEMPTIBLE, pod_of.pod.demand.gpus))
            return True
        decision = admit(pod_of.pod, _requester(pod_of), world)
        match decision:
            case Admit():
                self._admit(pod_of, decision)
            case Queue(team=team, user=user):
                self._join(pod_of)
                priority, created = task.priority, world.now
                world.set_waiting(WaitingPod(pod_of.pod, team, user=user, priority=priority, created=created))
            case NotApplicable(charge=charge):
                self._pass_by(pod_of, charge)
            case Deny(reasons=reasons):
                pod_of.record.refused = reasons
                if {reason.code for reason in reasons} <= _TRIED_AGAIN and self._comes_back(pod_of):
                    return False
                pod_of.record.state = TaskState.REFUSED
            case Retry():
                return False
        return True

    def _join(self, pod_of: PodOf) -> None:
        self.queued[pod_of.uid] = pod_of
        self.joined += 1
        for seconds in GANG_LOOKS if pod_of.pod.gang is not None else ():
            self._look_at(self._world.now + seconds)

    def _comes_back(self, pod_of: PodOf) -> bool:
        """Whether a refused pod is created again, and could start if its team held nothing."""
        if self._settings.refusals is not Refusals.RETRY:
            return False
        assessed = assess(pod_of.pod, _requester(pod_of), self._world)
        return assessed.early_decision is None and not reasons_never_to_start(assessed, self._world)

    def _admit(self, pod_of: PodOf, admitted: Admit) -> None:
        nodes = admitted.node_choice.nodes
        self._start(pod_of, admitted, fits=bool(nodes) and self._world.fleet.fits(nodes[0], admitted.demand))

    def _start(self, pod_of: PodOf, admitted: Admit, *, fits: bool) -> None:
        """Create an admitted pod; kube-scheduler binds it to the webhook's first choice if that has room."""
        self._cluster.admit(pod_of, admitted)
        if fits:
            self._runs.start(pod_of, admitted.node_choice.nodes[0])

    def _pass_by(self, pod_of: PodOf, charge: Charge | None) -> None:
        """Leave a pod to kube-scheduler alone."""
        self._cluster.pass_by(pod_of, charge if charge is not None and charge.gpus else None)


def _requester(pod_of: PodOf) -> Requester:
    user = pod_of.record.task.user
    return CONTROLLER if user is None else Requester(user)
