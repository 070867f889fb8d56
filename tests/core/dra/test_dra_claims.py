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
    world,
)
from webhook.core.dra.dra_claims import ADMIN_ACCESS, ClaimKey, GroupEntry
from webhook.core.model.amount import ONE_GPU
from webhook.core.model.claim_ref import ClaimRef
from webhook.core.model.decision import Retry
from webhook.core.model.device_class import DeviceClass
from webhook.core.model.pod import NamespaceFacts
from webhook.policy.builtin import BUILT_IN


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
