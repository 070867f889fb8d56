"""Writes Events on pods that hold GPUs and bypassed the webhook: it was down, or they are a kubelet's static pods."""

from webhook.core.model.names import Uid
from webhook.core.model.pod import Resident
from webhook.core.model.text import plural_gpus
from webhook.kube.objects.events import EventReason
from webhook.server.leader.leader_context import LeaderContext


class BypassReporter:
    """Reports each such pod once. A new leader reports it again, with the same Event, which is then not a new one.

    Pods that are in the ledger when they are first seen passed the webhook to be counted only, and have no labels.
    """

    def __init__(self, context: LeaderContext) -> None:
        self._context = context
        self._world = context.world
        self._reported: set[Uid] = set()

    def report_new(self) -> None:
        """Report the pods that appeared since the last call."""
        found = set(self._world.without_decision())
        for uid in found - self._reported:
            pod = self._world.pod(uid)
            if pod is not None and not self._world.tenancy(pod.namespace).is_exempt and not self._world.is_assumed(uid):
                self._report(pod)
        self._reported = found

    def skip_existing(self) -> None:
        """Never report the current pods: they were created while the policy was not enforced."""
        self._reported = {pod.uid for pod in self._world.pods()}

    def _report(self, pod: Resident) -> None:
        team = self._world.tenancy(pod.namespace).team_name
        text = (
            f"holds {plural_gpus(pod.demand.gpus)} without a decision of Fairgate; they are charged to team {team}. "
            "A pod of a DaemonSet, with a nodeName or of another scheduler is never labeled; any other pod bypassed "
            "Fairgate's webhook"
        )
        self._context.report(pod, EventReason.BYPASSED_ADMISSION, text)
