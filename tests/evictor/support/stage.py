"""A cluster on the fake API server and an evictor that leads in it, for tests of failures."""

import asyncio
import itertools
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests import builders
from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.stores import until
from tests.core.support import make
from webhook.cluster.api.client import ApiConnection
from webhook.cluster.writes.events import OwnerEvent, OwnerLookup
from webhook.core.model.policy import Policy
from webhook.core.model.policy_addons import NotifyKind
from webhook.core.reclaim.reclaim_plan import Round
from webhook.core.reclaim.reclaim_pods import ReclaimPod
from webhook.evictor.addons import EvictorParts, Leading, MakeEvictorAddon
from webhook.evictor.cluster_view import ClusterView, EvictorContext
from webhook.evictor.executor import Executor
from webhook.evictor.hold_manager import HoldManager
from webhook.evictor.loop import Reclaimer
from webhook.evictor.reporter import EvictionReporter
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects.events import Event
from webhook.observe.evictor import ReclaimMetrics
from webhook.observe.logs import LineWriter, LogFormat, Logs

HELD_NODES = "/apis/fairgate.dev/v1alpha1/heldnodes"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
PODS, NODES, NAMESPACES = "/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces"
REPORT = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "2 Insufficient nvidia.com/gpu",
}
NO_ROOM = {"phase": "Pending", "conditions": [REPORT]}
POOR = make.policy(make.team(guaranteed=0), make.team("team-b"))


class Stage:
    """Nodes of four GPUs, teams `team-a` (guaranteed nothing) and `team-b` (guaranteed 20)."""

    def __init__(self, api: FakeApi, connection: ApiConnection) -> None:
        self.api = api
        self.connection = connection
        self.policy = POOR
        self.events: list[Event] = []
        self.notices: list[OwnerEvent] = []
        self.addons: Sequence[MakeEvictorAddon] = ()
        self.messages: list[tuple[NotifyKind, ReclaimPod, str]] = []
        self.is_leading = True
        loop, began = asyncio.get_running_loop(), int(time.time())
        self.now: Callable[[], float] = lambda: began + loop.time()
        self._ids = itertools.count(1)
        for name in ("team-a", "team-b"):
            api.put(NAMESPACES, name)
        api.put(HELD_NODES, "fairgate", spec={})

    # -- the cluster

    def locked(self) -> dict[str, list[str]]:
        """The nodes that the API server guards, with their beneficiaries."""
        found = self.api.objects[HELD_NODES].get("/fairgate")
        return {} if found is None else found["spec"].get("nodes", {})

    def node(self, name: str, **more: Any) -> None:
        body = builders.node(name, gpus=4)
        self.api.put(NODES, name, metadata={"labels": {}, **more}, spec={}, status=body["status"])

    def borrower(self, name: str, *, on: str, gpus: int = 1, **more: Any) -> str:
        return self.pod(name, "team-a", "preemptible", gpus=gpus, node=on, **more)

    def asker(self, name: str, *, gpus: int = 1, **more: Any) -> str:
        """A pod for which kube-scheduler found no room."""
        since = {"lastTransitionTime": rfc3339(int(self.now()))}
        return self.pod(name, "team-b", "guaranteed", gpus=gpus, status={"conditions": [REPORT | since]}, **more)

    def pinned(self, name: str, *, to: str, **more: Any) -> str:
        """A pod that the webhook restricted to one node, and that is not bound."""
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [to]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        annotations = {"fairgate.dev/decision": json.dumps({"nodes": [to]})}
        return self.pod(name, "team-b", "guaranteed", affinity=affinity, annotations=annotations, **more)

    def unseen(self, name: str, *, created: int) -> str:
        """A borrowing pod that kube-scheduler has not come to."""
        return self.pod(name, "team-b", "preemptible", created=rfc3339(created))

    def budget(self, *, allowed: int = 100) -> None:
        """A PodDisruptionBudget that covers all borrowers, so that the API server may refuse to evict them."""
        status = {"disruptionsAllowed": allowed, "observedGeneration": 1}
        self.api.put(BUDGETS, "all", namespace="team-a", spec={"selector": {}}, status=status)

    def bind(self, name: str, node: str) -> None:
        """Do what the scheduler does."""
        pod = self.api.objects[PODS][f"team-b/{name}"]
        self.api.keep(PODS, f"team-b/{name}", {**pod, "spec": {**pod["spec"], "nodeName": node}})

    def find_no_room(self, name: str) -> None:
        """Do what the scheduler does with a pod that fits nowhere."""
        pod = self.api.objects[PODS][f"team-b/{name}"]
        self.api.keep(PODS, f"team-b/{name}", {**pod, "status": NO_ROOM})

    def pod(self, name: str, team: str, tier: str, **more: Any) -> str:
        labels = {"fairgate.dev/team": team, "fairgate.dev/tier": tier}
        labels |= more.pop("gang", {})
        status, created, owners = more.pop("status", {}), more.pop("created", None), more.pop("ownerReferences", [])
        body = builders.pod(name, namespace=team, labels=labels, **more) | {"status": status}
        body["metadata"] |= {"creationTimestamp": created} | ({"ownerReferences": owners} if owners else {})
        uid: str = self.api.put(PODS, name, namespace=team, **body)["metadata"]["uid"]
        return uid

    def bare(self, name: str, *, team: str, **more: Any) -> None:
        """A pod of one GPU that bypassed the webhook."""
        status = more.pop("status", {})
        self.api.put(PODS, name, namespace=team, **builders.pod(name, namespace=team, **more) | {"status": status})

    def names(self) -> set[str]:
        return {key.partition("/")[2] for key in self.api.objects[PODS]}

    def taints(self, node: str) -> list[dict[str, str]]:
        return self.api.objects[NODES][f"/{node}"]["spec"].get("taints") or []

    def tolerations(self, name: str) -> list[dict[str, str]]:
        return self.api.objects[PODS][f"team-b/{name}"]["spec"].get("tolerations") or []

    def room_of(self, name: str) -> str | None:
        """The node that keeps room which a pod may use: the pod tolerates the taint of its hold."""
        ids = {each["value"] for each in self.tolerations(name)}
        nodes = (key.removeprefix("/") for key in self.api.objects[NODES])
        return next((node for node in nodes if ids & {taint["value"] for taint in self.taints(node)}), None)

    def real_evictions(self) -> int:
        return sum("dryRun" not in sent["deleteOptions"] for sent in self.api.evictions)

    # -- the evictor

    def record(self, event: Event) -> None:
        self.events.append(event)

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]

    def context(self, cluster_view: ClusterView, logs: Logs | None = None, **parts: Any) -> EvictorContext:
        """Return a context of an evictor on this cluster, which leads while the stage says so."""
        parts = {"metrics": None, "why_stale": lambda: None, "clock": self.now} | parts
        return EvictorContext(
            cluster_view=cluster_view,
            connection=self.connection,
            events=self,
            notify_owner=self.notices.append,
            notify=lambda *each: self.messages.append(each),
            logs=logs,
            is_leading=lambda: self.is_leading,
            **parts,
        )

    @asynccontextmanager
    async def leader(self, policy: Policy = POOR):
        """Lead with the stage's add-ons until the end of the block, where the process ends without cleanup."""
        cluster_view, self.metrics = ClusterView(policy, clock=self.now), ReclaimMetrics()
        feed = cluster_view.feed(self.connection)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        logs = Logs(LineWriter(nowhere), log_format=LogFormat.JSON)
        context = self.context(cluster_view, logs, metrics=self.metrics, why_stale=feed.readiness)
        parts = EvictorParts(
            cluster_view=cluster_view, connection=self.connection, logs=logs, metrics=self.metrics, process="p"
        )
        addons = [make(parts) for make in self.addons]
        reporter = EvictionReporter(context)
        manager = HoldManager(context, reporter, new_id=lambda: f"h{next(self._ids)}")
        executor = Executor(context)
        owners = OwnerLookup(self.connection)
        leading = Leading(context=context, manager=manager, executor=executor, reporter=reporter, owners=owners)
        more = [task for each in addons for task in each.lead(leading)]

        async def after_round(found: Round) -> None:
            for each in addons:
                await each.after_round(found)

        work = Reclaimer(context, manager, executor, reporter, after_round)
        tasks = [asyncio.create_task(each) for each in (feed.run(), work.run(), *more)]
        try:
            yield manager
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            os.close(nowhere)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended

    async def until(self, holds: Callable[[], bool], *, seconds: float = 30.0) -> None:
        """Wait until a condition holds."""
        try:
            await until(holds, seconds=seconds)
        except TimeoutError:
            raise AssertionError(json.dumps(self.api.objects[NODES], indent=1)) from None


def fill(stage: "Stage", *nodes: str) -> None:
    """Add nodes of four GPUs that borrowers use up."""
    for node in nodes:
        stage.node(node)
        for number in range(4):
            stage.borrower(f"{node}-{number}", on=node)
