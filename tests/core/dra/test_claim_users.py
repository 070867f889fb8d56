"""Users of claims: one is charged, and one takes the room on each node, in any order of events."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.devices.claim_users import ClaimKey, ClaimUsers, keys_of
from webhook.core.model.amounts import Namespace, NodeName, Uid
from webhook.core.model.demand import ClaimRef

ONE, TWO = (ClaimKey("claim", Namespace("team-a"), name) for name in ("one", "two"))
TEMPLATE = ClaimKey("template", Namespace("team-a"), "made")


def roles(users: ClaimUsers, uids) -> dict[tuple[Uid, ClaimKey], tuple[bool, bool]]:
    """Whether each pod is charged for each claim that it uses, and whether it takes its room."""
    return {
        (uid, key): (users.charged_pod(key) == uid, users.takes_room(key, uid))
        for uid in uids
        for key in users.keys_of(uid)
    }


EVENTS = st.tuples(
    st.sampled_from([Uid(f"u{number}") for number in range(5)]),
    st.sampled_from([None, NodeName("n0"), NodeName("n1")]),
    st.sampled_from([(), (ONE,), (TWO,), (ONE, TWO), (ONE, TEMPLATE)]),
    st.booleans(),
)


@given(st.lists(EVENTS, max_size=40))
def test_one_pays_one_takes_the_room_on_a_node_and_every_other_pod_that_changed_is_returned(events):
    users, there, nodes = ClaimUsers(), {}, {}
    for uid, node, keys, leaves in events:
        before = roles(users, there)
        changed = users.leave(uid) if leaves else users.join(uid, keys, node)
        there.pop(uid, None) if leaves else there.setdefault(uid)
        nodes[uid] = node
        after = roles(users, there)
        assert uid not in changed
        others = {other for (other, key), role in after.items() if key != TEMPLATE and before.get((other, key)) != role}
        assert others - {uid} <= changed <= there.keys()
        for key in (ONE, TWO):
            using = users.of(key)
            assert sorted(users.on_nodes(key)) == sorted(each for each in using if nodes[each] is not None)
            assert (
                [users.charged_pod(key) == each for each in using] == [True] + [False] * (len(using) - 1)
                if using
                else True
            )
            taking = [nodes[each] for each in using if users.takes_room(key, each)]
            want = {nodes[each] for each in using} - {None} or ({None} if using else set())
            assert sorted(map(str, taking)) == sorted(map(str, want))
    for uid in list(there):
        users.leave(uid)
    assert not any(key in users for key in (ONE, TWO, TEMPLATE))


def test_the_charged_pod_takes_the_room_of_its_node_and_the_others_follow_it():
    users = ClaimUsers()
    users.join(Uid("a"), (ONE,), None)
    assert users.takes_room(ONE, Uid("a"))
    assert users.join(Uid("b"), (ONE,), NodeName("n1")) == {Uid("a")}, "b is on a node, so a needs no room elsewhere"
    assert [users.takes_room(ONE, Uid(uid)) for uid in "ab"] == [False, True]
    assert users.node(ONE, Uid("c")) == "n1"
    assert users.join(Uid("a"), (ONE,), NodeName("n1")) == {Uid("b")}, "the room is that of the charged pod again"
    assert users.leave(Uid("a")) == {Uid("b")}
    assert (users.charged_pod(ONE), users.takes_room(ONE, Uid("b"))) == ("b", True)
    assert users.node(ONE, Uid("b")) is None, "b alone may go anywhere"


def test_the_room_goes_to_the_next_charged_pod_where_that_is():
    users = ClaimUsers()
    for uid, node in (("a", None), ("b", None), ("c", "n0"), ("b", "n0")):
        users.join(Uid(uid), (ONE,), node and NodeName(node))
    assert users.takes_room(ONE, Uid("c"))
    assert users.leave(Uid("a")) == {"b", "c"}
    assert [users.takes_room(ONE, Uid(uid)) for uid in "bc"] == [True, False]


def test_a_pod_that_is_no_user_yet_needs_room_only_if_there_is_none():
    users = ClaimUsers()
    assert users.takes_room(ONE, Uid("new"))
    users.join(Uid("a"), (ONE,), None)
    assert users.takes_room(ONE, Uid("new")), "the other waits for the same room"
    users.join(Uid("a"), (ONE,), NodeName("n0"))
    assert not users.takes_room(ONE, Uid("new"))
    users.join(Uid("b"), (ONE,), NodeName("n0"), is_expected=True)
    users.join(Uid("c"), (ONE,), None)
    assert users.on_nodes(ONE) == ["a"]
    users.join(Uid("b"), (ONE,), NodeName("n0"))
    assert users.on_nodes(ONE) == list(users.on_node(ONE, NodeName("n0"))) == ["a", "b"]
    users.join(Uid("c"), (ONE,), NodeName("n1"))
    assert users.on_nodes(ONE) == ["a", "b", "c"]
    assert list(users.on_node(ONE, NodeName("n1"))) == ["c"]
    users.leave(Uid("c"))
    users.join(Uid("b"), (ONE,), None)
    assert (users.on_nodes(ONE), list(users.on_node(ONE, NodeName("n1")))) == (["a"], [])
    assert users.on_nodes(TWO) == []


def test_events_of_one_of_many_users_return_few():
    users = ClaimUsers()
    for number in range(5_000):
        assert len(users.join(Uid(f"u{number}"), (ONE,), NodeName(f"n{number % 7}"))) <= 3
    for number in range(5_000):
        assert len(users.leave(Uid(f"u{number}"))) <= 3


def test_a_pod_depends_on_its_claims_templates_and_groups():
    refs = (
        ClaimRef(claim="one"),
        ClaimRef(claim="p-made", template="made"),
        ClaimRef(template="made", group="g", entry="e"),
    )
    found = [(key.kind, key.name) for key in keys_of(Namespace("team-a"), refs)]
    assert found == [
        ("claim", "one"),
        *(("claim", "p-made"), ("template", "made")),
        *(("group", "g"), ("entry", "g/e/made"), ("template", "made")),
    ]


def test_who_pays_next_takes_the_room_on_its_node_from_the_user_that_had_it():
    users = ClaimUsers()
    for uid, node in (("gone", None), ("next", None), ("first", "n0"), ("next", "n0")):
        users.join(uid, (ONE,), node)
    assert users.takes_room(ONE, "first")
    assert users.leave("gone") == {"first", "next"}
    assert (users.takes_room(ONE, "first"), users.takes_room(ONE, "next")) == (False, True)
