"""A fake cluster with pods in line, and the leader's releases of them."""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests import builders
from tests.cluster.support.fake_api import FakeApi, Held
from tests.cluster.support.stores import FAST, unexpected, write_kubeconfig
from tests.core.support import make
from tests.server.support.harness import until
from webhook.cluster.api.client import ApiConnection, connect
from webhook.cluster.ledger.ledger import ApiLedger
from webhook.cluster.watch.feed import Feed
from webhook.core.model.amounts import TeamName
from webhook.core.model.decision import NotApplicable
from webhook.core.model.policy import OnLimit, OnNoRoom
from webhook.core.model.reasons import Code, Reason
from webhook.core.quota.charges import LedgerDecision
from webhook.kube.objects import keys
from webhook.kube.pod.waiting import Waits, waiting_annotations
from webhook.kube.watched.world_kinds import world_kinds
from webhook.observe.logs import LogFormat, open_logs
from webhook.observe.metrics import Metrics
from webhook.server.leader.registration_loop import LeaderContext
from webhook.server.leader.start_loop import StartLoop

PODS, NAMESPACES, NODES = "/api/v1/pods", "/api/v1/namespaces", "/api/v1/nodes"
TEAM_LEDGERS = "/apis/fairgate.dev/v1alpha1/teamledgers"
A = TeamName("team-a")
QUEUES = {"on_limit": OnLimit.QUEUE, "on_no_room": OnNoRoom.QUEUE}


@dataclass
class Stage:
    """A fake cluster, a world that follows it, and the releases of its leader."""

    api: FakeApi
    world: object
    ledger: ApiLedger
    releaser: StartLoop
    feed: Feed
    connection: ApiConnection
    events: list = field(default_factory=list)
    is_leading: bool = True
    running: "asyncio.Task | None" = None
    tasks: list = field(default_factory=list)

    def queue(
        self,
        name="p",
        count=1,
        *,
        created=0,
        year=2036,
        gates=(keys.QUEUE_GATE,),
        text="",
        reason=None,
        gang="",
        size=0,
        of="",
        controller=None,
    ):
        namespace = "team-a"
        decision = {
            "demand": {builders.GPU: str(count)},
            "gpus": str(count),
            "mode": "queue",
            "nodes": [],
            "code": "WaitsForLimit",
            "policy": "p1",
            "user": "alice",
            "at": "then",
        }
        annotations = {keys.DECISION: json.dumps(decision)}
        if reason is not None:
            annotations |= waiting_annotations(Waits(reason))
        if text or reason is None:
            annotations[keys.WAITING] = text or "waits: x"
        labels = {keys.TEAM: namespace}
        if gang:
            labels["kueue.x-k8s.io/pod-group-name"] = gang
            annotations["kueue.x-k8s.io/pod-group-total-count"] = str(size)
        if of:
            labels["jobset.sigs.k8s.io/jobset-name"] = of
        made = builders.pod(
            name, namespace=namespace, gpus=count, labels=labels, annotations=annotations, controller=controller
        )
        made["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
        meta = made.pop("metadata") | {"creationTimestamp": f"{year}-01-01T00:00:{created:02}Z"}
        return self.api.put(PODS, name, namespace=namespace, metadata=meta, **made)["metadata"]["uid"]

    def touch(self, name="p"):
        """Change an annotation of a pod that decides nothing."""
        now = self.pod(name)
        metadata = now["metadata"] | {"annotations": now["metadata"]["annotations"] | {"touched": "true"}}
        self.api.put(PODS, name, namespace="team-a", **(now | {"metadata": metadata}))

    def redecide(self, name="p"):
        """Change the decision of a pod, as a leader does that takes its charge back."""
        annotations = self.pod(name)["metadata"]["annotations"]
        annotations[keys.DECISION] = annotations[keys.DECISION].removesuffix("}") + ',"held":"1"}'

    def hold(self, name, count, *, tier="guaranteed", node="n0"):
        labels = {keys.TEAM: "team-a", keys.TIER: tier}
        made = builders.pod(name, namespace="team-a", gpus=count, labels=labels, node=node)
        return self.api.put(PODS, name, namespace="team-a", metadata=made.pop("metadata"), **made)

    def pod(self, name="p"):
        return self.api.objects[PODS][f"team-a/{name}"]

    def is_gated(self, name="p"):
        return bool(self.pod(name)["spec"].get("schedulingGates"))

    def listed(self):
        found = self.api.objects[TEAM_LEDGERS].get("/team-a", {"ledger": {"inFlight": []}})
        return {entry["name"] for entry in found["ledger"]["inFlight"]}

    def text(self, name="p"):
        return self.pod(name)["metadata"]["annotations"].get(keys.WAITING, "")

    async def looks(self, times=3):
        """Let the leader look at the queue so often."""
        for _ in range(times):
            self.releaser.wake()
            await asyncio.sleep(0.1)

    def patches(self):
        return [each.path.rpartition("/")[2] for each in self.api.asked if each.verb == "patch"]

    async def held_release(self):
        """Queue a pod, and return what holds up its release once it is charged."""
        held = Held()
        self.api.faults["patch /api/v1/namespaces/team-a/pods/p"].append(held)
        self.queue()
        await until(lambda: self.listed() == {"p"})
        await until(lambda: not self.api.faults["patch /api/v1/namespaces/team-a/pods/p"])
        return held

    def lead(self):
        self.running = asyncio.create_task(self.releaser.run())

    async def resign(self):
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    async def die(self):
        """End everything that this replica does."""
        tasks = [*self.tasks, *([] if self.running is None else [self.running])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.ledger.close()


@asynccontextmanager
async def staged(folder, *, limit=4, guaranteed=4, leads=True, nodes=1):
    """A fake cluster and one replica."""
    async with FakeApi().serving() as api, await connect(write_kubeconfig(folder / "k", api.url)) as connection:
        for namespace in ("team-a", "team-b"):
            api.put(NAMESPACES, namespace)
        for number in range(nodes):
            node = builders.node(f"n{number}", gpus=10)
            api.put(NODES, f"n{number}", metadata=node.pop("metadata"), **node)
        Recorder.recorded.clear()
        Recorder.owners.clear()
        async with replica(folder, api, connection, limit=limit, guaranteed=guaranteed) as stage:
            if leads:
                stage.lead()
            yield stage


@asynccontextmanager
async def replica(folder, api, connection, *, limit=4, guaranteed=4, waits=True):
    """One more replica on the same cluster, with its own view of it; it does not lead yet.

    Unless it `waits`, it may not have listed everything yet.
    """
    team = make.team(guaranteed=guaranteed, limit_=limit, **QUEUES)
    world = make.world(make.policy(team, make.team("team-b", **QUEUES)), nodes=[])
    counts = Metrics().watch_ledger(list, teams=list)
    ledger = ApiLedger(
        connection, world, reached=lambda: pods.reached, recorder=counts, known={}.get, on_restored=unexpected
    )
    feed = Feed(connection, (*world_kinds(world, pods=world), ledger.kind()), pace=FAST)
    pods = next(watch for watch in feed.watches if watch.kind.name == "pods")
    loop = asyncio.get_running_loop()
    ahead = int(time.time()) - loop.time()
    with (folder / "log").open("ab") as log:
        context = LeaderContext(
            connection=connection,
            world=world,
            ledger=ledger,
            events=Recorder(),
            logs=open_logs(LogFormat.JSON, fd=log.fileno()),
            is_leading=lambda: stage.is_leading,
            notify_owner=Recorder.owners.append,
            why_stale=feed.why_not_synced,
        )
        releaser = StartLoop(context, clock=lambda: ahead + loop.time())
        stage = Stage(api, world, ledger, releaser, feed, connection, Recorder.recorded)
        world.on_usage_changed = releaser.note_usage
        stage.tasks = [
            asyncio.create_task(each)
            for each in (feed.run(), ledger.reconcile(is_leader=lambda: stage.running and stage.is_leading))
        ]
        try:
            if waits:
                await feed.wait_synced()
            yield stage
        finally:
            await stage.die()


class Recorder:
    recorded: list = []  # noqa: RUF012 - cleared for each stage
    owners: list = []  # noqa: RUF012 - the same

    def record(self, event):
        self.recorded.append(event)


def lines(folder, event):
    return [line for raw in (folder / "log").read_text().splitlines() if (line := json.loads(raw))["event"] == event]


def charged(found):
    return LedgerDecision(NotApplicable(Reason(Code.WITHIN_SHARE, "charged"), found.charge), found)
