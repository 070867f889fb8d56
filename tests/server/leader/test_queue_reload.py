"""What `policy diff` predicts of queued pods is which of them the leader releases once the policy is replaced."""

import asyncio
import copy
import tempfile
from pathlib import Path

from hypothesis import event, given
from hypothesis import strategies as st

from tests.core.support import make
from tests.core.support.departments import department
from tests.examples import examples
from tests.server.support.harness import until
from tests.server.support.releases import NAMESPACES, NODES, PODS, QUEUES, staged
from tests.virtual_time import VirtualTimeLoop
from webhook.cli.policy_diff import compare
from webhook.cli.world_source import WorldObjects
from webhook.core.model.policy import Enforcement
from webhook.kube.objects import keys

KINDS = {NAMESPACES: "Namespace", NODES: "Node", PODS: "Pod"}
_sizes = st.integers(1, 4)


@st.composite
def policies(draw, *, most):
    """The share of the team, its limit, the limit of a department, the pools and the mode may be others."""
    guaranteed = draw(st.integers(0, most))
    above = (department("research", limit_=draw(st.integers(1, 2 * most))),) if draw(st.booleans()) else ()
    limit = guaranteed + draw(st.integers(0, most))
    team = make.team(guaranteed=guaranteed, limit_=limit, departments=above, **QUEUES)
    pools = (make.pool("x", node_selector=(("at", "x"),)),) if not draw(st.integers(0, 4)) else ()
    enforce = draw(st.sampled_from([Enforcement.ENFORCE] * 4 + [Enforcement.SHADOW]))
    return make.policy(team, pools=pools, departments=above, enforce=enforce)


async def replaced(folder, held, queued, old, new):
    """What `policy diff` says of an edit once the old policy has nothing left to release, and what is released then."""
    async with staged(folder, leads=False) as stage:
        stage.world.set_policy(old)
        if held:  # with the tier that it has under the old policy
            fits = make.gpus(held) <= old.teams[0].gpus.guaranteed
            stage.hold("held", held, tier="guaranteed" if fits else "preemptible")
        for number, count in enumerate(queued):
            stage.queue(f"q{number}", count, created=number)
        await until(lambda: len(stage.world.waiting) == len(queued) and len(list(stage.world.pods())) == bool(held))
        stage.lead()
        await stage.looks(6)
        objects = tuple(
            copy.deepcopy(each) | {"apiVersion": "v1", "kind": kind}
            for path, kind in KINDS.items()
            for each in stage.api.objects[path].values()
        )
        said = compare(WorldObjects(objects), old, new, name="w")
        before = gated(stage)
        stage.world.set_policy(new)
        await stage.looks(6)
        return said, before, before - gated(stage), {name: tier(stage, name) for name in before}


def gated(stage):
    names = [each["metadata"]["name"] for each in stage.api.objects[PODS].values()]
    return {name for name in names if stage.is_gated(name)}


def tier(stage, name):
    return stage.pod(name)["metadata"]["labels"].get(keys.TIER)


@examples(25)
@given(st.integers(0, 4), st.lists(_sizes, min_size=1, max_size=5), policies(most=2), policies(most=8))
def test_what_is_predicted_of_queued_pods_is_what_the_leader_releases(held, queued, old, new):
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        said, before, released, tiers = runner.run(replaced(Path(folder), held, queued, old, new))
    predicted = {each.pod.partition("/")[2]: each.new.outcome for each in said.changes}
    event(f"queued: {bool(before)}, released: {bool(released)}, enforced: {new.is_enforced}")
    for name in before:
        outcome = predicted.get(name, "queued")
        assert (name in released) == (outcome in ("guaranteed", "preemptible", "counted")), (name, outcome)
        if name in released and new.is_enforced:
            assert tiers[name] == outcome
