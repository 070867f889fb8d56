"""A scheduler that knows one constraint more than Fairgate: owners get their room, or an Event says why not."""

import asyncio
import random
from dataclasses import replace

import pytest

from tests.evictor.support.stage import NODES, PODS, fill
from webhook.evictor.backoff import TRIES
from webhook.evictor.hold_manager import HOLD_SECONDS
from webhook.kube.reclaim.holds import rfc3339

GRACE_SECONDS = 30
BOUND_SECONDS = TRIES * (HOLD_SECONDS + GRACE_SECONDS + 30)
"""How long a pod waits at most for its room, or for an Event that says that it gets none."""

WHY = "0/4 nodes are available: 2 Insufficient nvidia.com/gpu, 2 node(s) exceed max volume count"


class Scheduler:
    """Places pods of one GPU as kube-scheduler would, with a constraint that only it knows: `allowed` nodes by pod."""

    def __init__(self, stage, allowed):
        self.stage = stage
        self.allowed = allowed

    def free(self, node):
        pods = self.stage.api.objects[PODS].values()
        return 4 - sum(1 for each in pods if each["spec"].get("nodeName") == node)

    def takes(self, node, pod):
        """Whether a node is open to a pod, has room for it, and is allowed to it."""
        if self.stage.api.objects[NODES][f"/{node}"]["spec"].get("unschedulable"):
            return False
        values = {each.get("value") for each in pod["spec"].get("tolerations") or ()}
        is_open = all(taint.get("value") in values for taint in self.stage.taints(node))
        return is_open and self.free(node) > 0 and node in self.allowed(pod["metadata"]["name"])

    def step(self):
        """Come to every pod once."""
        for key, pod in list(self.stage.api.objects[PODS].items()):
            if pod["spec"].get("nodeName"):
                continue
            nodes = [key.removeprefix("/") for key in self.stage.api.objects[NODES]]
            if node := next((each for each in sorted(nodes) if self.takes(each, pod)), None):
                self.stage.api.keep(PODS, key, {**pod, "spec": {**pod["spec"], "nodeName": node}})
            elif not (pod.get("status") or {}).get("conditions"):
                report = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": WHY}
                report["lastTransitionTime"] = rfc3339(int(self.stage.now()))
                self.stage.api.keep(PODS, key, {**pod, "status": {"phase": "Pending", "conditions": [report]}})

    async def run(self):
        """Run until cancelled."""
        while True:
            self.step()
            await asyncio.sleep(1)


def ask(stage, name):
    """A guaranteed pod that no scheduler has come to yet."""
    stage._pod(name, "team-b", "guaranteed", created=rfc3339(int(stage.now())))


def is_bound(stage, name):
    return bool(stage.api.objects[PODS][f"team-b/{name}"]["spec"].get("nodeName"))


def reasons(stage, name, reason):
    return [each.message for each in stage.events if (each.about.name, each.reason) == (name, reason)]


@pytest.fixture
async def schedule(stage):
    """Starts a scheduler."""
    tasks = []

    def start(allowed):
        tasks.append(asyncio.create_task(Scheduler(stage, allowed).run()))

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
    assert "did not use it" in reasons(stage, "b", "CannotReclaim")[-1]


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


@pytest.mark.parametrize("seed", range(12))
async def test_each_owner_gets_its_room_or_an_event_says_why(stage, schedule, seed):
    dice = random.Random(seed)
    nodes = [f"n{number}" for number in range(dice.randint(2, 4))]
    full = [node for node in nodes if dice.random() < 0.7]
    fill(stage, *full)
    for node in set(nodes) - set(full):
        stage.node(node)
    names = [f"b{number}" for number in range(dice.randint(1, 3))]
    allowed = {name: {node for node in nodes if dice.random() < 0.4} for name in names}
    schedule(lambda name: allowed.get(name, set(nodes)))
    async with stage.leader():
        await asyncio.sleep(dice.choice([0, 20]))
        for name in names:
            ask(stage, name)
            await asyncio.sleep(dice.randint(0, 5))
        await asyncio.sleep(BOUND_SECONDS)
    for name in names:
        assert is_bound(stage, name) or reasons(stage, name, "CannotReclaim"), (seed, name, allowed[name])
        assert len(reasons(stage, name, "Reclaiming")) <= TRIES, (seed, name)
