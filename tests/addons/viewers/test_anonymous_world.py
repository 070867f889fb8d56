"""A world made of the anonymous one has the same room, charges and line, and none of the names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.core.support.make import GPU, gpus, node, policy, resident, team, world
from tests.core.support.waiting import waiting
from tests.examples import examples
from webhook.addons.viewers.nameless import Anonymizer, AnonymousWorld
from webhook.core.explain.line_places import places
from webhook.core.explain.line_rows import QueueReader
from webhook.core.model.amounts import CPU, Namespace, NodeName, TeamName, Uid, User
from webhook.core.model.demand import Demand
from webhook.core.model.node import HOSTNAME, Autoscaler
from webhook.core.model.pod import Handling
from webhook.core.world.hidden_usage import Totals, Unnamed, is_hidden_usage
from webhook.core.world.world import World

A, B = TeamName("team-a"), TeamName("team-b")
POLICY = policy(team("team-a"), team("team-b", limit_=None))


def anonymous(full):
    made = Anonymizer(full)
    list(made.steps())
    return made.result()


def seen_by(full, *, own=()):
    """The world of a person who may list the pods of some namespaces, and no nodes."""
    made = World(full.policy)
    for pod in full.pods():
        if pod.namespace in own:
            made.set_pod(pod)
    for each in full.waiting.all():
        if each.pod.namespace in own:
            made.set_waiting(each)
    Unnamed(world=anonymous(full)).fill(made)
    return made


def room(of):
    return {
        each.name: {name: of.fleet.free(each.name, name) for name in (GPU, CPU)} | {"labels": dict(each.labels)}
        for each in of.fleet.nodes()
    }


def sums(of):
    used = {name: (usage.total, usage.preemptible, usage.waiting) for name, usage in of.usage_by_team().items()}
    return {name: each for name, each in used.items() if any(each)}


def line(of):
    return {name: (of.waiting.count(name), of.waiting.gpus(name)) for name in (A, B)}


NODES = st.sampled_from([None, "n0", "n1", "n2"])
RESIDENTS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["team-a", "team-b", "of-no-team"]),
        st.sampled_from(["guaranteed", "preemptible", None]),
        NODES,
        st.sampled_from(list(Handling)),
        st.booleans(),
    ),
    max_size=8,
)
LINE = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["team-a", "team-b"]), st.integers(0, 5)), max_size=6)


@examples(60)
@given(RESIDENTS, LINE, st.sets(st.sampled_from(["team-a", "team-b", "of-no-team"]), max_size=2))
def test_it_has_the_room_the_charges_and_the_line_of_the_whole(residents, waits, own):
    full = world(POLICY, [node(f"n{i}", labels={HOSTNAME: f"n{i}", "zone": "z"}) for i in range(3)])
    for number, (count, namespace, tier, on, handling, leaves) in enumerate(residents):
        if count or on:
            at = None if on is None else NodeName(on)
            made = resident(count, uid=f"u{number}", namespace=namespace, tier=tier, node=at, handling=handling)
            full.set_pod(made._replace(is_terminating=leaves, created=number, user=User(f"user-{number}")))
    for number, (count, namespace, priority) in enumerate(waits):
        full.set_waiting(waiting(f"w{number}", count, namespace=namespace, created=number, priority=priority))
    seen = seen_by(full, own=own)
    assert (room(seen), sums(seen), line(seen)) == (room(full), sums(full), line(full))
    mine = {each.uid for each in full.waiting.all() if each.pod.namespace in own}
    assert {uid: place for uid, place in places(seen).items() if uid in mine} == {
        uid: place for uid, place in places(full).items() if uid in mine
    }
    assert {row.waiting.uid for row in QueueReader(seen).rows()} == mine, "of others no row is shown"


def test_what_pods_without_gpus_request_is_one_sum_and_own_ones_count_once():
    full = world(POLICY, [node("n0", cpu=8000)])
    plain = Demand(0, (), ((CPU, 1000),))
    for number, namespace in enumerate(("team-a", "team-b", "team-b")):
        full.set_pod(resident(uid=f"u{number}", namespace=namespace, demand=plain, tier=None, node=NodeName("n0")))
    for own in ((), ("team-a",), ("team-a", "team-b")):
        seen = seen_by(full, own=own)
        assert seen.fleet.free(NodeName("n0"), CPU) == 5000
        assert sum(map(is_hidden_usage, seen.pods())) == 1


def test_the_nodes_of_a_world_that_has_some_stay_as_they_are():
    full = world(POLICY, [node("n0", gpus=8)])
    made = World(POLICY)
    made.set_node(node("n0", gpus=4))
    Unnamed(world=anonymous(full)).fill(made)
    assert made.fleet.free(NodeName("n0"), GPU) == 4


def test_a_pod_that_points_at_nothing_is_an_error():
    full = world(POLICY, [node("n0")])
    full.set_pod(resident(node=NodeName("n0")))
    broken = structs.replace(anonymous(full), demands=())
    with pytest.raises(ValueError, match="points at nothing"):
        broken.fill(World(POLICY))


def test_a_limit_counts_what_others_of_the_team_hold():
    full = world(POLICY, [node("n0")])
    full.set_pod(resident(4, uid="mine", namespace="team-a", node=NodeName("n0")))
    full.set_pod(resident(3, uid="other", namespace="team-b", node=NodeName("n0")))
    seen = seen_by(full, own=("team-a",))
    assert (seen.usage(A).total, seen.usage(B).total) == (gpus(4), gpus(3))
    assert seen.usage(B).largest(1)[0].name == "*team-b/Pod/*"
    assert seen.pod(Uid("mine")).namespace == Namespace("team-a")


def test_pods_that_have_ended_since_are_not_counted_beside_those_that_came():
    """The anonymous world is some seconds old; the sums of teams are not."""
    before = world(POLICY, nodes=[node("n0")], residents=[resident(2, uid="old", node="n0", created=1)])
    room = anonymous(before)
    mine = World(POLICY)
    mine.set_pod(resident(2, uid="new", node="n0", created=9))
    Unnamed((Totals(A, gpus(2), 0, 0),), room).fill(mine)
    assert [pod.uid for pod in mine.pods()] == ["new"]
    assert (mine.usage(A).total, mine.fleet.free(NodeName("n0"), GPU)) == (gpus(2), 8)

    grown = World(POLICY)
    Unnamed((Totals(A, gpus(3), 0, 0),), room).fill(grown)
    assert grown.usage(A).total == gpus(3), "what came since is charged, on a node that is not known"
    assert sum(is_hidden_usage(pod) for pod in grown.pods()) == 2


def test_it_says_which_autoscalers_there_are_as_far_as_its_reader_knows_them():
    made = World(policy())
    AnonymousWorld(autoscalers=("Karpenter", "of a later version")).fill(made)
    assert made.autoscalers == {Autoscaler.KARPENTER}
