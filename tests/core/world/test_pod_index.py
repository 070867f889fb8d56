"""The pods of the world by UID, namespace and node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import JOB, gpus, resident, world
from webhook.core.model.amounts import TeamName
from webhook.core.world.pod_index import PodIndex, PodRecord, holder_of

A = TeamName("team-a")


def test_holders_are_named_by_their_controller_largest_first():
    pods = [resident(2, owner=JOB), resident(3, name="bare"), resident(4, owner=JOB)]
    holders = world(residents=pods).usage(A).largest_holders()
    assert holders == [
        ("team-a/Job/train", gpus(6)),
        ("team-a/Pod/bare", gpus(3)),
    ]


RECORDS = st.builds(
    lambda uid, namespace, node, team, count, is_reserved: PodRecord(
        resident(count, uid=uid, namespace=namespace, tier=None if team is None else "guaranteed"),
        A,
        node,
        is_reserved,
    ),
    st.sampled_from(["u0", "u1", "u2", "u3"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, "n0", "n1"]),
    st.sampled_from([None, "team-a"]),
    st.integers(0, 2),
    st.booleans(),
)


@given(st.lists(st.tuples(st.booleans(), RECORDS), max_size=20))
def test_look_ups_are_those_of_a_plain_scan(changes):
    index, known = PodIndex(), {}
    for is_there, record in changes:
        uid = record.pod.uid
        assert index.pop(uid) is known.pop(uid, None)
        if is_there:
            index.add(record)
            known[uid] = record
        records = known.values()
        assert list(index.all()) == list(records)
        assert (uid in index, index.get(uid)) == (is_there, known.get(uid))
        for namespace in ("a", "b"):
            mine = [each for each in records if each.pod.namespace == namespace]
            assert set(index.in_namespace(namespace)) == {each.pod.uid for each in mine}
            assert index.has_seen_pods(namespace) is any(not each.is_reserved for each in mine)
        for node in ("n0", "n1"):
            assert set(index.on_node(node)) == {each.pod.uid for each in records if each.node == node}
        undecided = {each.pod.uid for each in records if each.pod.team_label is None and each.pod.demand.gpus}
        assert set(index.without_decision()) == undecided


@pytest.mark.parametrize(
    ("owner", "want"), [(None, "ns/Pod/p"), (JOB, "ns/Job/train")], ids=["a bare pod", "a pod with a controller"]
)
def test_a_holder_is_the_object_that_users_know(owner, want):
    assert holder_of("ns", "p", owner) == want
