"""Claims in the world: which pod is charged, objects seen later, and the weights of policy."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import make
from tests.core.support.claims import (
    GPU_CLASS,
    MAKING,
    SHARED,
    SHARING,
    TEMPLATE,
    charged,
    resident,
    resolve_for,
    spec,
    with_devices,
    world,
)
from webhook.core.devices.claim_users import AllocatedAt, ClaimKey, GroupEntry
from webhook.core.devices.claims import ADMIN_ACCESS
from webhook.core.model.amounts import ONE_GPU
from webhook.core.model.decision import Retry
from webhook.core.model.demand import ClaimRef
from webhook.core.model.gpu_shares import DeviceClass
from webhook.core.model.pod import Admitted, NamespaceFacts
from webhook.policy.sections import BUILT_IN


@pytest.mark.parametrize("order", list(permutations(["a", "b", "c"])))
def test_a_shared_claim_is_charged_once_in_any_order_of_removal(order):
    place = world()
    place.set_claim(SHARED, spec(2))
    for uid in ("a", "b", "c"):
        place.set_pod(resident(uid, SHARING))
        assert charged(place) == 2
    for uid in order:
        assert charged(place) == 2
        place.remove_pod(uid)
    assert charged(place) == 0
    assert len(place.usage("team-a")) == 0


def test_a_template_is_charged_to_every_pod_and_by_its_claim_once_known():
    place = world()
    place.set_claim(TEMPLATE, spec(32))
    place.set_pod(resident("a", MAKING))
    place.set_pod(resident("b", MAKING))
    assert charged(place) == 64
    got = resident("a")._replace(claims=(ClaimRef(claim="a-made", template="made"),))
    place.set_pod(got)
    place.set_claim(ClaimKey("claim", "team-a", "a-made"), spec(4))
    assert charged(place) == 36


def test_pods_of_a_group_share_the_claim_of_its_template():
    place = world()
    place.set_claim(TEMPLATE, spec(4))
    ref, group = ClaimRef(template="made", group="g", entry="gpus"), ClaimKey("group", "team-a", "g")
    place.set_pod(resident("a", ref))
    place.set_pod(resident("b", ref))
    assert charged(place) == 8, "no object shows that they share"
    place.set_group(group, frozenset({GroupEntry("gpus", "other")}))
    assert charged(place) == 8
    place.set_group(group, frozenset({GroupEntry("gpus", "made")}))
    assert charged(place) == 4
    place.set_pod(resident("c", ref._replace(claim="made-for-g")))
    place.set_group(group, None)
    place.remove_pod("a")
    assert charged(place) == 4, "they share as long as one of them is there"


def test_objects_seen_later_are_charged_then():
    place = make.world(make.policy(resources=BUILT_IN))
    place.set_pod(resident("a", SHARING))
    assert charged(place) == 0
    place.set_claim(SHARED, spec(2, "ours.dev"))
    place.set_device_class("ours.dev", DeviceClass("ours.dev", "nvidia.com/gpu"))
    assert charged(place) == 2
    place.set_claim(SHARED, None)
    assert charged(place) == 2, "its pods keep their devices"
    place.remove_pod("a")
    assert isinstance(resolve_for(place, SHARING), Retry)


def test_another_policy_weighs_claims_again():
    place = world()
    place.set_claim(SHARED, spec(2))
    place.set_pod(resident("a", SHARING, node="n0"))
    half = {**BUILT_IN, GPU_CLASS.implicit_resource: ONE_GPU // 2}
    place.set_policy(replace(place.policy, resources=half, hash="p2"))
    assert charged(place) == 1
    place.set_policy(replace(place.policy, resources=BUILT_IN, hash="p3"))
    place.remove_pod("a")
    assert charged(place) == 0
    assert place.fleet.free("n0", "cpu") == 64_000


def test_admin_access_counts_nothing_only_in_an_admin_namespace():
    place = world()
    place.set_claim(SHARED, spec(2, is_admin=True))
    place.set_pod(resident("a", SHARING))
    assert charged(place) == 2
    place.set_namespace(NamespaceFacts("team-a", {ADMIN_ACCESS: "true"}))
    assert charged(place) == 0


@given(st.lists(st.tuples(st.sampled_from(["join", "leave", "claim", "delete"]), st.integers(0, 3)), max_size=20))
def test_each_claim_in_use_is_charged_once_in_any_order_of_events(events):
    place = world()
    there = set()
    size, is_deleted = 0, False
    for what, number in events:
        match what:
            case "join":
                there.add(number)
                place.set_pod(resident(f"u{number}", SHARING, node=f"n{number}"))
            case "leave":
                there.discard(number)
                place.remove_pod(f"u{number}")
            case "claim":
                size, is_deleted = number, False
                place.set_claim(SHARED, spec(number))
            case _:
                is_deleted = True
                place.set_claim(SHARED, None)
        size = 0 if is_deleted and not there else size  # a claim that is deleted holds as long as it is in use
        assert charged(place) == (size if there else 0)
    for number in there:
        place.remove_pod(f"u{number}")
    assert all(place.fleet.free(f"n{i}", "cpu") == 64_000 for i in range(4))


def free(place, name="n0"):
    return place.fleet.free(name, GPU_CLASS.implicit_resource)


def test_a_shared_claim_takes_its_room_once_on_a_node_until_its_last_pod_leaves():
    place = with_devices(8)
    place.set_claim(SHARED, spec(3))
    for number in range(8):
        place.set_pod(resident(f"u{number}", SHARING, node="n0"))
        assert free(place) == 5
    for number in range(8):
        assert (free(place), charged(place)) == (5, 3)
        place.remove_pod(f"u{number}")
    assert (free(place), charged(place)) == (8, 0)


def test_pods_with_claims_of_their_own_beside_a_shared_one_take_room_for_those():
    place = with_devices(8)
    place.set_claim(SHARED, spec(3))
    place.set_claim(TEMPLATE, spec(1))
    for uid in ("a", "b"):
        place.set_pod(resident(uid, SHARING, MAKING, node="n0"))
    assert (free(place), charged(place)) == (3, 5)


def test_a_pod_that_joins_a_claim_needs_no_room_and_goes_where_the_claim_is():
    place = with_devices(1, "n0", "n1")
    place.set_claim(SHARED, spec(1))
    alone = resolve_for(place, SHARING)
    assert dict(alone.demand.requests)[GPU_CLASS.implicit_resource] == 1
    assert place.fleet.matching(alone.constraints).bit_count() == 4
    place.set_pod(resident("a", SHARING, node="n1"))
    joining = resolve_for(place, SHARING)
    assert GPU_CLASS.implicit_resource not in dict(joining.demand.requests)
    assert (joining.demand.gpus, joining.demand.devices) == (0, ((GPU_CLASS.implicit_resource, 1),))
    assert place.fleet.names_of(place.fleet.matching(joining.constraints)) == ["n1"]


def test_an_allocated_claim_binds_its_pods_to_its_node_before_any_is_there():
    place = with_devices(1, "n0", "n1")
    place.set_claim(SHARED, spec(1), allocated=AllocatedAt("n1"))
    joining = resolve_for(place, SHARING)
    assert place.fleet.names_of(place.fleet.matching(joining.constraints)) == ["n1"]
    place.set_claim(SHARED, spec(1))
    assert place.fleet.matching(resolve_for(place, SHARING).constraints).bit_count() == 4


PLACES = st.sampled_from([None, "n0", "n1"])


@given(
    st.lists(
        st.tuples(st.integers(0, 4), PLACES, st.sampled_from([(SHARING,), (MAKING,), (SHARING, MAKING)])), max_size=25
    )
)
def test_room_on_a_node_is_that_of_its_claims_each_once_in_any_order_of_events(events):
    place = with_devices(20, "n0", "n1")
    place.set_claim(SHARED, spec(3))
    place.set_claim(TEMPLATE, spec(1))
    there = {}
    for number, node, refs in events:
        uid = f"u{number}"
        if there.get(uid) == (node, refs):
            del there[uid]
            place.remove_pod(uid)
        else:
            on = node or there.get(uid, (None,))[0]  # a pod does not leave its node
            there[uid] = (on, refs)
            place.set_pod(resident(uid, *refs, node=on))
        for name in ("n0", "n1"):
            here = [refs for node, refs in there.values() if node == name]
            want = 3 * any(SHARING in refs for refs in here) + sum(MAKING in refs for refs in here)
            assert 20 - free(place, name) == want
        want = 3 * any(SHARING in refs for _, refs in there.values()) + sum(
            MAKING in refs for _, refs in there.values()
        )
        assert charged(place) == want


def test_a_pod_records_only_claims_that_were_compared_with_a_limit():
    place = world()
    place.set_claim(SHARED, spec(1), "c1")
    assert resolve_for(place, SHARING).demand.claims == ("c1",)
    place.set_pod(resident("a", SHARING)._replace(admitted=Admitted(ONE_GPU, "p1", ("c1",))))
    assert resolve_for(place, SHARING).demand.claims == ("c1",), "its charged pod was admitted with it"
    place.set_claim(SHARED, spec(1), "c2")
    assert resolve_for(place, SHARING).demand.claims == ("c2",), "made again as it was"
    place.set_claim(SHARED, spec(16), "c3")
    assert resolve_for(place, SHARING).demand.claims == (), "made again larger: no limit was asked"


def test_a_pod_keeps_what_it_has_of_a_claim_that_was_removed_and_made_again():
    """Its finalizer keeps a claim in use, and a tenant may remove that; the devices stay with the pod."""
    place = with_devices(8, "n0", "n1")
    place.set_claim(SHARED, spec(4), "c1", allocated=AllocatedAt("n0"))
    for uid in ("a", "b"):
        place.set_pod(resident(uid, SHARING, node="n0"))
    place.set_claim(SHARED, None)
    place.set_claim(SHARED, spec(1), "c2")
    assert (charged(place), free(place)) == (4, 4)
    place.set_pod(resident("late", SHARING, node="n1"))
    assert (charged(place), free(place), free(place, "n1")) == (5, 4, 7)
    place.set_pod(resident("a", SHARING, node="n0")._replace(version=2, tier_label="preemptible"))
    place.remove_pod("a")
    assert (charged(place), free(place)) == (5, 4)
    place.remove_pod("b")
    assert (charged(place), free(place)) == (1, 8)
    place.set_claim(SHARED, None)
    place.remove_pod("late")
    assert (charged(place), place.claims.users.pods()) == (0, ())
    assert isinstance(resolve_for(place, SHARING), Retry)


def test_a_claim_that_was_made_again_before_it_was_allocated_counts_as_it_is_now():
    place = world()
    place.set_claim(SHARED, spec(4), "c1")
    place.set_pod(resident("a", SHARING, node="n0"))
    place.set_claim(SHARED, None)
    place.set_claim(SHARED, spec(1), "c2")
    assert charged(place) == 1


def test_a_pod_that_waits_for_its_node_uses_the_claim_that_is_made_again():
    """The deletion of the allocated claim is all that a list after a lost watch shows."""
    place = with_devices(8)
    place.set_claim(SHARED, spec(4), "c1", allocated=AllocatedAt("n0"))
    place.set_pod(resident("a", SHARING, node="n0"))
    place.set_pod(resident("waits", SHARING, promised="n0"))
    place.set_claim(SHARED, None)
    place.remove_pod("a")
    place.set_claim(SHARED, spec(1), "c2")
    assert (charged(place), free(place)) == (1, 7)
