"""Minimums in simulations: those of annotations and of a world file's autoscalers say who goes, and what that loses."""

import json

from tests import builders as b
from tests.addons.simulation.loads import T0, policy_of, simulated, task, team, world_of
from webhook.core.model.amounts import WorkloadName
from webhook.core.model.pod import Replica
from webhook.core.world.world import World
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects import keys
from webhook.kube.world_file.world_file import fill_world

WEB = WorkloadName("b/Deployment/web")
TEAMS = policy_of(team("a", 4), team("b", 0))


def world_file(*, minimum):
    """A node of four GPUs: three old replicas of a service that borrows, and a young pod beside them."""
    labels = {keys.TEAM: "b", keys.TIER: "preemptible"}
    old, young = {"creationTimestamp": rfc3339(T0 - 9000)}, {"creationTimestamp": rfc3339(T0 - 60)}
    web = b.replicas("web", 3, namespace="b", node="n0", labels=labels)
    job = b.pod("job", namespace="b", uid="job", node="n0", labels=labels, phase="Running")
    for pod in (*web, job):
        pod["metadata"] |= young if pod is job else old
        pod["metadata"]["annotations"] = {keys.DECISION: "{}"}
    scalers = [] if minimum is None else [b.autoscaler("web", namespace="b", minimum=minimum)]
    items = [b.node("n0", gpus=4), *web, job, *scalers]
    world = World(TEAMS)
    fill_world(world, json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), name="w")
    world.tick(T0)
    return world


def left_after(world, gpus):
    simulated(world, *(task(f"t{number}", "a", 1, at=number, seconds=10**6) for number in range(gpus)))
    return sorted("web" if pod.name.startswith("web") else pod.name for pod in world.pods() if pod.namespace == "b")


def test_an_autoscaler_of_a_world_file_says_who_goes_first():
    assert left_after(world_file(minimum=None), 1) == ["web"] * 3, "the youngest loses least"
    assert left_after(world_file(minimum=1), 1) == ["job", "web", "web"]
    assert left_after(world_file(minimum=1), 2) == ["job", "web"]
    assert left_after(world_file(minimum=1), 3) == ["web"], "and then the other pod before its last replica"


def test_a_task_that_is_trimmed_loses_no_work():
    def replica(name, minimum):
        made = task(name, "b", 1, seconds=10_000)
        return made._replace(pod=made.pod._replace(replica=Replica(WEB, minimum)))

    for minimum, lost in ((1, 0), (None, 500)):
        world = world_of(TEAMS, gpus=2)
        records, _ = simulated(world, replica("r0", minimum), replica("r1", minimum), task("own", "a", 1, at=500))
        gone = [records[name] for name in ("r0", "r1") if records[name].evictions]
        assert [(each.lost_seconds, each.saved_seconds) for each in gone] == [(lost, 500 - lost)]
