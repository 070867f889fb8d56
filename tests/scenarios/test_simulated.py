"""The simulator against reality: the same pods, one after the other, here and on the real control plane.

Both go step by step: in each, the pods that have run for their number of steps end, and one pod is created. Then what
became of every pod must be the same on both sides: refused, in line, waiting for a node, its tier, its node, evicted.
Steps begin with whole seconds, since ages and lost work count in seconds. No pod ends sooner than half a minute after
its start, or the evictor would count the evictions for it as wasted and pause its team, which the simulator leaves out.
"""

import json
import random
import time
from dataclasses import dataclass, field

import pytest

from tests.control_plane.api import ApiError
from tests.control_plane.objects import pod
from tests.control_plane.workbench import create_pod, list_pods, make_nodes, wait_for
from tests.scenarios.evictor import evictor, held_nodes
from tests.scenarios.standing_fairgate import TIER, serve_fairgate
from webhook.addons.simulation.engine import Simulation
from webhook.addons.simulation.task import Evictions, Refusals, Settings, Task, TaskRecord, TaskState
from webhook.core.model.amounts import CPU, MEMORY, ONE_GPU, PODS, Namespace, NodeName, ResourceName, TeamName, User
from webhook.core.model.demand import demand_of
from webhook.core.model.pod import Pod
from webhook.core.world.world import World
from webhook.kube.pod.pods import unix_seconds
from webhook.kube.world_file.world_file import fill_world
from webhook.policy.watch import load

pytestmark = [pytest.mark.cluster, pytest.mark.standing, pytest.mark.long, pytest.mark.timeout(900)]

GPU = ResourceName("nvidia.com/gpu")
PODS_OF_A_RUN = 150
USER = User("kubernetes-admin")
POLICIES = {
    "queued": "defaults: {onLimit: queue, onNoRoom: queue}\n",
    "refused at limits": "defaults: {onNoRoom: queue}\n",
}


@dataclass
class Planned:
    """One pod: how many steps it runs; `started` is the step of its start."""

    name: str
    team: str
    gpus: int
    steps: int
    tier: str | None
    record: TaskRecord | None = None
    started: int | None = None
    is_over: bool = False


@dataclass
class Comparison:
    """Both sides, in step."""

    cluster: object
    fairgate: object
    simulation: Simulation
    pods: dict[str, Planned] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def namespace(self, planned):
        return self.fairgate.team_a if planned.team == "a" else self.fairgate.team_b

    def due(self, step):
        """The pods that have run for their number of steps."""
        there = [each for each in self.pods.values() if each.started is not None and not each.is_over]
        return [each for each in there if step - each.started >= each.steps and each.record.state is TaskState.RUNNING]

    def note_starts(self, step):
        for each in self.pods.values():
            if each.record.state is TaskState.RUNNING and each.started is None:
                each.started = step

    def agree(self, what):
        """Let the simulation settle, and wait until the cluster has come to the same."""
        self.simulation.run(until=int(time.time()))

        def is_same():
            self.adopt_free_choices()
            assert not self.differences(), self.differences()
            for team in "ab":
                units = self.simulation.world.usage(TeamName(team)).total
                assert self.fairgate.charged(team) == units / ONE_GPU, team
            return not held_nodes(self.cluster)

        wait_for(self.cluster, is_same, what=what)

    def end(self, planned, *, at):
        planned.is_over = True
        self.simulation.end_pod(self.uid(planned), at=at)
        pods = f"/api/v1/namespaces/{self.namespace(planned)}/pods/{planned.name}"
        self.cluster.api.patch(pods, {"metadata": {"labels": {"fairgate.test/completes": "true"}}})

    def uid(self, planned):
        """The UID of the pod in the simulation."""
        return next(uid for uid, each in self.simulation.cluster.pods.items() if each.record is planned.record)

    def create(self, planned, *, at):
        namespace = self.namespace(planned)
        labels = None if planned.tier is None else {TIER: planned.tier}
        made = pod(planned.name, gpus=planned.gpus, cpu="1", memory="4Gi", labels=labels, restartPolicy="Never")
        self.pods[planned.name] = planned
        try:
            found = create_pod(self.cluster, namespace, made)
            at = unix_seconds(found["metadata"]["creationTimestamp"])
        except ApiError:
            self.refused.add(planned.name)
        requests = {CPU: 1000, MEMORY: 4 << 30, PODS: 1, GPU: planned.gpus}
        demand = demand_of(requests, self.simulation.world.policy.resources)
        simulated = Pod(Namespace(namespace), demand, name=planned.name, labels=labels or {}, tier_label=planned.tier)
        task = Task(planned.name, simulated, TeamName(planned.team), at, 10**6, user=USER)
        planned.record = self.simulation.add(task)

    def real(self):
        """What became of each pod in the cluster."""
        found = dict.fromkeys(self.refused, "refused")
        for namespace in (self.fairgate.team_a, self.fairgate.team_b):
            for each in list_pods(self.cluster, namespace):
                found[each["metadata"]["name"]] = _state_of(each)
        gone = {name: "over" if planned.is_over else "evicted" for name, planned in self.pods.items()}
        return gone | found

    def simulated(self):
        """What became of each pod in the simulation."""
        found = {}
        for name, planned in self.pods.items():
            state = planned.record.state
            if planned.is_over or state in {TaskState.REFUSED, TaskState.EVICTED}:
                found[name] = "over" if planned.is_over else str(state)
            elif state is TaskState.WAITING and not any(
                each.record is planned.record for each in self.simulation.cluster.pods.values()
            ):
                found[name] = "queued"
            else:
                resident = self.simulation.world.pod(self.uid(planned))
                found[name] = f"{resident.tier_label} on {resident.node}"
        return found

    def differences(self):
        real, simulated = self.real(), self.simulated()
        return {name: (simulated[name], real[name]) for name in real if real[name] != simulated[name]}

    def adopt_free_choices(self):
        """Move pods to the nodes where kube-scheduler put them, where it had several: it may choose any of those."""
        for name, (simulated, real) in self.differences().items():
            tier, _, node = real.partition(" on ")
            pods = self.simulation.cluster.pods
            mine = next((each for each in pods.values() if each.record is self.pods[name].record), None)
            if mine is not None and mine.is_free_choice and simulated.startswith(tier) and node not in {"", "None"}:
                self.simulation.cluster.move(mine, NodeName(node))


def _state_of(found):
    if any(gate["name"] == "fairgate.dev/queue" for gate in found["spec"].get("schedulingGates", ())):
        return "queued"
    if found["status"].get("phase") == "Succeeded":
        return "over"
    if "deletionTimestamp" in found["metadata"]:
        return "ending"
    return f"{found['metadata']['labels'][TIER]} on {found['spec'].get('nodeName')}"


def _planned(seed):
    dice = random.Random(seed)
    for number in range(PODS_OF_A_RUN):
        gpus = dice.choice([1, 1, 1, 2, 2, 4, 4, 8])
        tier = dice.choice([None] * 8 + ["preemptible", "guaranteed"])
        yield Planned(f"p{number:03}", dice.choice("ab"), gpus, dice.randint(31, 45), tier)


def _next_second():
    time.sleep(1.05 - time.time() % 1)
    return int(time.time())


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_same_pods_get_the_same_in_the_simulator_and_on_the_real_control_plane(cluster, policy):
    make_nodes(cluster, 8)
    limits = {"limit_a": 44, "limit_b": 60}
    with serve_fairgate(cluster, policy=policy, is_own=True, **limits) as fairgate, evictor(fairgate):
        world = World(load(fairgate.policy))
        listed = cluster.kubectl.json("get", "nodes,namespaces")
        fill_world(world, json.dumps(listed), name="live")
        settings = Settings(refusals=Refusals.LOSE, evictions=Evictions.LOSE)
        both = Comparison(cluster, fairgate, Simulation(world, [], settings=settings))
        for step, planned in enumerate(_planned(1)):
            now = _next_second()
            for each in both.due(step):  # one after the other: what the first frees is given away before the next ends
                both.end(each, at=now)
                both.agree(f"step {step}: {each.name} has ended")
            both.create(planned, at=now)
            both.agree(f"step {step}: {planned.name} was created")
            both.note_starts(step)
        states = {each.record.state for each in both.pods.values()}
        assert TaskState.EVICTED in states
        assert any(each.record.wait_seconds for each in both.pods.values()) or TaskState.REFUSED in states
