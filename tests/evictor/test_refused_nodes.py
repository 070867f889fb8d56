"""A scheduler that knows one constraint more than Fairgate: owners get their room, or an Event says why not."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.support.fake_api import FakeApi
from tests.cluster.support.stores import write_kubeconfig
from tests.evictor.support.stage import NODES, PODS, Stage, fill
from tests.examples import examples
from tests.virtual_time import VirtualTimeLoop
from webhook.cluster.api.client import connect
from webhook.evictor.hold_manager import HOLD_SECONDS
from webhook.evictor.unevictable import TRIES
from webhook.kube.nodes.holds import rfc3339

GRACE_SECONDS = 30
BOUND_SECONDS = TRIES * (HOLD_SECONDS + GRACE_SECONDS + 30)
"""How long a pod waits at most for its room, or for an Event that says that it gets none."""

GPUS = 4
"""Of each node."""

WHY = "0/4 nodes are available: 2 Insufficient nvidia.com/gpu, 2 node(s) exceed max volume count"


@dataclass
class Scheduler:
    """Places pods as kube-scheduler would, with a constraint that only it knows: `allows` a node to a pod, by names.

    Pods have one GPU where `gpus` says nothing else.
    """

    stage: Stage
    allows: Callable[[str, str], bool]
    gpus: dict[str, int] = field(default_factory=dict)
    why: str = WHY

    def names_on(self, node):
        """The pods on a node."""
        pods = self.stage.api.objects[PODS].items()
        return [key.partition("/")[2] for key, pod in pods if pod["spec"].get("nodeName") == node]

    def takes(self, node, pod):
        """Whether a node is open to a pod, has room for it, and is allowed to it."""
        if self.stage.api.objects[NODES][f"/{node}"]["spec"].get("unschedulable"):
            return False
        values = {each.get("value") for each in pod["spec"].get("tolerations") or ()}
        is_open = all(taint.get("value") in values for taint in self.stage.taints(node))
        name = pod["metadata"]["name"]
        used = sum(self.gpus.get(each, 1) for each in (*self.names_on(node), name))
        return is_open and used <= GPUS and self.allows(name, node)

    def step(self):
        """Come to every pod once."""
        for key, pod in list(self.stage.api.objects[PODS].items()):
            if pod["spec"].get("nodeName"):
                continue
            nodes = [key.removeprefix("/") for key in self.stage.api.objects[NODES]]
            if node := next((each for each in sorted(nodes) if self.takes(each, pod)), None):
                self.stage.api.keep(PODS, key, {**pod, "spec": {**pod["spec"], "nodeName": node}})
            elif not (pod.get("status") or {}).get("conditions"):
                report = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": self.why}
                report["lastTransitionTime"] = rfc3339(int(self.stage.now()))
                self.stage.api.keep(PODS, key, {**pod, "status": {"phase": "Pending", "conditions": [report]}})

    async def run(self):
        """Run until cancelled."""
        while True:
            self.step()
            await asyncio.sleep(1)


def ask(stage, name, **more):
    """A guaranteed pod that no scheduler has come to yet."""
    stage.pod(name, "team-b", "guaranteed", created=rfc3339(int(stage.now())), **more)


def is_bound(stage, name):
    return bool(stage.api.objects[PODS][f"team-b/{name}"]["spec"].get("nodeName"))


def reasons(stage, name, reason):
    return [each.message for each in stage.events if (each.about.name, each.reason) == (name, reason)]


@pytest.fixture
async def schedule(stage):
    """Starts a scheduler."""
    tasks = []

    def start(allowed):
        tasks.append(asyncio.create_task(Scheduler(stage, lambda name, node: node in allowed(name)).run()))

    yield start
    for task in tasks:
        task.cancel()


async def test_room_is_made_where_the_scheduler_would_use_it(stage, schedule):
    fill(stage, "full")
    stage.node("odd")
    schedule(lambda name: {"full"} if name == "b" else {"full", "odd"})
    async with stage.leader():
        await asyncio.sleep(20)
        ask(stage, "b")
        await stage.until(lambda: is_bound(stage, "b"))
    assert stage.real_evictions() == 1
    (text,) = reasons(stage, "b", "Reclaiming")
    assert text.endswith(f"kube-scheduler finds no room on odd: {WHY}; Fairgate cannot see why")


async def test_a_node_that_was_freed_just_now_is_left_to_the_scheduler(stage, schedule):
    fill(stage, "n0", "n1")
    async with stage.leader():
        await asyncio.sleep(20)
        stage.asker("b")
        stage.api.delete(PODS, "n1-0", namespace="team-a")
        await asyncio.sleep(9)
        assert stage.real_evictions() <= 1, "at most what was planned before the pod ended"
        before = stage.real_evictions()
        schedule(lambda _: {"n0", "n1"})
        await stage.until(lambda: is_bound(stage, "b"))
    assert stage.real_evictions() == before


async def test_no_third_plan_is_made_for_a_pod_that_never_uses_its_room(stage, schedule):
    fill(stage, "n0", "n1", "n2")
    schedule(lambda name: set() if name == "b" else {"n0", "n1", "n2"})
    async with stage.leader() as manager:
        await asyncio.sleep(20)
        ask(stage, "b")
        await asyncio.sleep(BOUND_SECONDS + 300)
        assert [each.name for each in manager.without_effect()] == ["b"]
        assert stage.real_evictions() == TRIES
    plans = reasons(stage, "b", "Reclaiming")
    assert len({text.partition("on node ")[2][:2] for text in plans}) == TRIES, "on another node each time"
    assert "did not use them" in reasons(stage, "b", "CannotReclaim")[-1]


@pytest.mark.slow
async def test_pods_that_are_created_again_and_again_have_few_evicted(stage, schedule):
    """A tenant alone decides what keeps its pods off every node, such as a volume of its own that is in use."""
    fill(stage, *(f"n{number}" for number in range(8)))
    schedule(lambda name: set() if name.startswith("b") else {f"n{number}" for number in range(8)})
    async with stage.leader():
        await asyncio.sleep(20)
        for number in range(12):
            ask(stage, f"b{number}")
            await asyncio.sleep(150)
            stage.api.delete(PODS, f"b{number}", namespace="team-b")
    assert stage.real_evictions() <= 9, "in half an hour"


async def test_a_plan_ends_once_its_node_does_not_take_the_pod(stage, schedule):
    fill(stage, "n0", "n1")
    policy = stage.policy
    schedule(lambda _: {"n0", "n1"})
    async with stage.leader(replace(policy, reclaim=replace(policy.reclaim, notice_seconds=20))):
        await asyncio.sleep(20)
        ask(stage, "b")
        await stage.until(lambda: stage.room_of("b") is not None)
        held = stage.room_of("b")
        node = stage.api.objects[NODES][f"/{held}"]
        taint = {"key": "example.com/maintenance", "value": "x", "effect": "NoSchedule"}
        stage.api.keep(NODES, f"/{held}", {**node, "spec": {"taints": [*stage.taints(held), taint]}})
        await stage.until(lambda: is_bound(stage, "b"), seconds=60)
        assert stage.real_evictions() == 1
        assert stage.api.objects[PODS]["team-b/b"]["spec"]["nodeName"] != held


ZONE = "topology.kubernetes.io/zone"
OF_ZONE = "0/4 nodes are available: 2 Insufficient nvidia.com/gpu, 2 node(s) had volume node affinity conflict"
UNSEEN = 4
"""Of each node: a resource that only the scheduler counts."""


@dataclass(frozen=True)
class Hidden:
    """A constraint that only the scheduler knows.

    `nodes` (a plugin) and `zones` (a volume) are those that are allowed to each owner; `apart`: one owner on each node;
    `uses` is what each owner, and each borrower on a node, uses of the unseen resource, which an eviction frees.
    """

    nodes: tuple[frozenset[int], ...] | None = None
    zones: tuple[str, ...] | None = None
    apart: bool = False
    uses: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Case:
    """How many borrowers are on each node, and its zone; the GPUs of each owner, and how long after others it comes."""

    borrowers: tuple[int, ...]
    zones: tuple[str, ...]
    owners: tuple[int, ...]
    pauses: tuple[int, ...]
    warms_up: int
    hidden: Hidden

    def allows(self, scheduler):
        """Return the constraint, for a scheduler in this world."""
        hidden = self.hidden

        def uses(name):
            return hidden.uses[int(name[1:].partition("-")[0]) % len(hidden.uses)]

        def allowed(name, node):
            place, number = int(node[1:]), int(name[1:].partition("-")[0])
            if not name.startswith("b"):
                return True
            there = scheduler.names_on(node)
            return (
                (hidden.nodes is None or place in hidden.nodes[number])
                and (hidden.zones is None or self.zones[place] == hidden.zones[number])
                and not (hidden.apart and any(each.startswith("b") for each in there))
                and (hidden.uses is None or sum(map(uses, (*there, name))) <= UNSEEN)
            )

        return allowed


@st.composite
def cases(draw):
    nodes = draw(st.integers(1, 4))
    few = st.lists(st.integers(1, GPUS), min_size=1, max_size=3).map(tuple)
    owners = draw(few)
    of_each = lambda values, count: st.tuples(*itertools.repeat(values, count))  # noqa: E731
    zones = st.sampled_from("ab")
    hidden = st.one_of(
        st.builds(Hidden),
        st.builds(Hidden, nodes=of_each(st.frozensets(st.integers(0, nodes - 1)), len(owners))),
        st.builds(Hidden, zones=of_each(zones, len(owners))),
        st.builds(Hidden, apart=st.just(value=True)),
        st.builds(Hidden, uses=of_each(st.integers(0, UNSEEN + 1), 3)),
    )
    return Case(
        borrowers=draw(of_each(st.sampled_from([GPUS, GPUS, 2, 0]), nodes)),
        zones=draw(of_each(zones, nodes)),
        owners=owners,
        pauses=draw(of_each(st.integers(0, 40), len(owners))),
        warms_up=draw(st.sampled_from([0, 20])),
        hidden=draw(hidden),
    )


async def play(stage, case):
    """Let the owners ask for room; return their names."""
    gpus = {f"b{number}": size for number, size in enumerate(case.owners)}
    for number, (count, zone) in enumerate(zip(case.borrowers, case.zones, strict=True)):
        stage.node(f"n{number}", labels={ZONE: zone})
        for place in range(count):
            stage.borrower(f"n{number}-{place}", on=f"n{number}")
    scheduler = Scheduler(stage, lambda *_: True, gpus, OF_ZONE if case.hidden.zones is not None else WHY)
    scheduler.allows = case.allows(scheduler)
    running = asyncio.create_task(scheduler.run())
    try:
        async with stage.leader():
            await asyncio.sleep(case.warms_up)
            for name, pause in zip(gpus, case.pauses, strict=True):
                ask(stage, name, gpus=gpus[name])
                await asyncio.sleep(pause)
            await asyncio.sleep(BOUND_SECONDS)
    finally:
        running.cancel()
    return list(gpus)


@given(cases())
@examples(25)
def test_each_owner_gets_its_room_or_an_event_says_why(tmp_path, case):
    async def run():
        async with (
            FakeApi(bookmark_seconds=60).serving() as api,
            await connect(write_kubeconfig(tmp_path / "kubeconfig", api.url)) as connection,
        ):
            stage = Stage(api, connection)
            for name in await play(stage, case):
                assert is_bound(stage, name) or reasons(stage, name, "CannotReclaim"), name
                assert len(reasons(stage, name, "Reclaiming")) <= TRIES, name

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())
