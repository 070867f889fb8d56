"""What `policy diff` predicts of an edit is what the leader does once the policy is replaced."""

import asyncio
import copy
import tempfile
from pathlib import Path

from hypothesis import event, given
from hypothesis import strategies as st

from tests.core.support import make
from tests.core.support.departments import department
from tests.examples import examples
from tests.server.leader.test_leader import PODS, staged
from tests.server.support.harness import until
from tests.virtual_time import VirtualTimeLoop
from webhook.cli.policy_diff import compare
from webhook.cli.world_source import WorldObjects
from webhook.core.model.policy import Enforcement
from webhook.core.tiers.shadow_labels import adoptions
from webhook.core.tiers.tier_changes import all_tier_changes

TOP = "research"
_share = st.integers(0, 6)
_pods = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from(["guaranteed", "preemptible", None]),
        st.integers(0, 30),
        st.sampled_from([None, "guaranteed", "preemptible"]),
    ),
    min_size=1,
    max_size=6,
)


@st.composite
def policies(draw, *, name="team-a"):
    """Its team may have another name, another share, a department, no pools; it may be in shadow mode."""
    guaranteed = draw(_share)
    above = department(TOP, limit_=draw(st.integers(1, 20))) if draw(st.booleans()) else None
    team = make.team(
        draw(st.sampled_from([name, "language"])),
        namespaces=("team-a",),
        guaranteed=guaranteed,
        limit_=guaranteed + draw(_share),
        departments=() if above is None else (above,),
    )
    pools = (make.pool("x", node_selector=(("at", "x"),)),) if draw(st.booleans()) else ()
    enforce = draw(st.sampled_from([Enforcement.ENFORCE, Enforcement.ENFORCE, Enforcement.SHADOW]))
    return make.policy(team, pools=pools, departments=() if above is None else (above,), enforce=enforce)


async def replaced(folder, pods, old, new):
    """The objects of a cluster before an edit, what `policy diff` says of it, and what the labels are after it."""
    async with staged(folder) as stage:
        stage.shadow_labels.set_policy(old)
        for number, (count, tier, created, asked) in enumerate(pods):
            stage.put(f"p{number}", tier, count, created=created, asked=asked)
        await until(lambda: len(list(stage.world.pods())) == len(pods))
        await settled(stage)
        objects = [
            copy.deepcopy(each) | {"apiVersion": "v1", "kind": "Pod"} for each in stage.api.objects[PODS].values()
        ]
        names = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
        said = compare(WorldObjects((names, *objects)), old, new, name="w")
        was = held(stage)
        stage.shadow_labels.set_policy(new)
        await settled(stage)
        return said, was, held(stage)


async def settled(stage):
    """Wait until the leader has nothing left to change."""
    for _ in range(1 if stage.world.policy.is_enforced else 6):  # nothing of shadow labels is seen outside
        await stage.rest()
    await until(lambda: not is_due(stage.world), seconds=120)


def is_due(world):
    if not world.policy.is_enforced:
        return False
    return any(adoptions(team, world) for team in world.policy.teams) or any(all_tier_changes(world))


def held(stage):
    """The team that each pod is charged to, and its tier."""
    world = stage.world
    return {
        f"team-a/{pod.name}": (world.charge_of(pod.uid).team, world.charge_of(pod.uid).tier.value)
        for pod in world.pods()
    }


@examples(25)
@given(_pods, policies(), policies())
def test_what_is_predicted_of_an_edit_is_what_the_leader_does(pods, old, new):
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        said, was, now = runner.run(replaced(Path(folder), pods, old, new))
    predicted = {each.pod: each for each in said.changes}
    for name, before in was.items():
        row = predicted.get(name)
        after = before if row is None else (row.new.team, row.new.outcome)
        event(f"changed: {before != now[name]}, enforced: {new.is_enforced}")
        assert after == now[name], f"{name} was {before}"
        if row is not None:
            assert (row.old.team, row.old.outcome) == before
