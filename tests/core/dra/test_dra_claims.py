"""Claims in the world: which pod is charged, objects seen later, and the weights of policy."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support import make
from webhook.core.admission.resolve_demand import resolve_demand
from webhook.core.dra.dra_claims import ADMIN_ACCESS, ClaimKey, ClassCount, DeviceRequest, GroupEntry
from webhook.core.dra.dra_slices import Condition, Device, Slice
from webhook.core.model.amount import ONE_GPU
from webhook.core.model.claim_ref import ClaimRef
from webhook.core.model.decision import Deny, Retry
from webhook.core.model.demand import demand_of
from webhook.core.model.device_class import DeviceClass
from webhook.core.model.names import PODS
from webhook.core.model.pod import Handling, NamespaceFacts, Requester
from webhook.core.model.policy import Defaults, UnknownGpu
from webhook.core.model.reason import Code
from webhook.core.placement.gpu_inventory import gpu_inventory
from webhook.policy.builtin import BUILT_IN

GPU_CLASS = DeviceClass("gpu.nvidia.com", mentions_gpus=True)
SHARED, TEMPLATE = ClaimKey("claim", "team-a", "shared"), ClaimKey("template", "team-a", "made")
SHARING, MAKING = ClaimRef(claim="shared"), ClaimRef(template="made")


def spec(number, name="gpu.nvidia.com", **more):
    return (DeviceRequest((ClassCount(name, number),), **more),)


def bare(**more):
    return make.demand(0, **more)


def resident(uid, *claims, **more):
    return make.resident(uid=uid, demand=bare(), claims=claims, **more)


def world(**more):
    made = make.world(make.policy(resources=BUILT_IN, **more))
    made.set_device_class(GPU_CLASS.name, GPU_CLASS)
    return made


def charged(world_):
    return world_.usage("team-a").total / ONE_GPU


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
    got = replace(resident("a"), claims=(ClaimRef(claim="a-made", template="made"),))
    place.set_pod(got)
    place.set_claim(ClaimKey("claim", "team-a", "a-made"), spec(4))
    assert charged(place) == 36


def test_pods_of_a_group_share_the_claim_of_its_template():
    place = world()
    place.set_claim(TEMPLATE, spec(4))
    ref, group = ClaimRef(template="made", group="g", entry="gpus"), ClaimKey("group", "team-a", "g")
    place.set_pod(resident("a", ref))
    place.set_pod(resident("b", ref))
    assert charged(place) == 8, "nothing says that they share"
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
    assert isinstance(at_the_door(place, SHARING), Retry)


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


def test_the_newer_of_two_classes_with_one_resource_wins():
    place = world()
    place.set_device_class("old", DeviceClass("old", "x.dev/fast", "2026-01-01T00:00:00Z"))
    place.set_device_class("new", DeviceClass("new", "x.dev/fast", "2026-02-01T00:00:00Z"))
    name = DeviceClass("new").implicit_resource
    place.set_policy(replace(place.policy, resources={**BUILT_IN, name: 3 * ONE_GPU}, hash="p2"))
    place.set_pod(make.resident(uid="a", demand=bare(**{"x.dev/fast": 1})))
    assert charged(place) == 3
    place.set_device_class("new", None)
    assert charged(place) == 0


def test_claims_and_requests_share_the_devices_of_a_node():
    place = world()
    mapped = GPU_CLASS._replace(extended_resource=make.GPU)
    place.set_device_class(mapped.name, mapped, Condition("", "gpu.nvidia.com"), Condition("d/type", "gpu"))
    place.set_node(make.node("sliced", gpus=0))
    gpu, mig = Device("gpu.nvidia.com", {"d/type": "gpu"}), Device("gpu.nvidia.com", {"d/type": "mig"})
    place.set_slice("s", Slice("sliced", "p", 1, (gpu, gpu, gpu, mig)))
    assert place.fleet.free("sliced", make.GPU) == 3
    place.set_claim(SHARED, spec(2))
    place.set_pod(resident("a", SHARING, node="sliced"))
    assert place.fleet.free("sliced", make.GPU) == 1
    place.set_slice("s2", Slice("sliced", "p", 2, (gpu,)))  # the driver publishes its devices again, slice by slice
    assert place.fleet.free("sliced", make.GPU) == -1
    place.set_slice("s2", None)
    place.remove_pod("a")
    assert place.fleet.free("sliced", make.GPU) == 3
    place.set_slice("s", None)
    assert place.fleet.free("sliced", make.GPU) == 0


def test_devices_of_a_device_plugin_replace_those_of_slices():
    place = world()
    place.set_device_class("c", DeviceClass("c", make.GPU))
    place.set_slice("s", Slice("n0", "p", 1, (Device("x", {}),)))
    assert place.fleet.free("n0", make.GPU) == 10


def at_the_door(place, *claims, **more):
    return resolve_demand(make.pod(demand=bare(**more), claims=claims), make.ALICE, place)


def test_claims_count_at_admission_and_counting_twice_changes_nothing():
    place = world()
    place.set_claim(SHARED, spec(2))
    pod = at_the_door(place, SHARING)
    assert pod.demand.gpus == 2 * ONE_GPU
    assert pod.demand.devices == ((GPU_CLASS.implicit_resource, 2),)
    assert resolve_demand(pod, make.ALICE, place) == pod
    place.set_pod(resident("a", SHARING))
    again = resolve_demand(pod, make.ALICE, place)
    assert (again.demand.gpus, again.demand.devices) == (0, pod.demand.devices), "somebody else pays"


@pytest.mark.parametrize(
    ("claims", "want"),
    [
        ((SHARING,), "not known yet: ResourceClaim team-a/shared;"),
        ((MAKING, SHARING), "not known yet: ResourceClaimTemplate team-a/made, ResourceClaim team-a/shared;"),
    ],
)
def test_unknown_objects_are_retried(claims, want):
    told = at_the_door(world(), *claims)
    assert isinstance(told, Retry)
    assert told.reason.code is Code.CLAIM_UNKNOWN
    assert told.reason.text.startswith(want)


def test_an_unknown_class_is_retried_and_a_class_without_a_weight_is_refused():
    place = world()
    place.set_claim(SHARED, spec(1, "mig.nvidia.com"))
    assert isinstance(at_the_door(place, SHARING), Retry)
    place.set_device_class("mig.nvidia.com", DeviceClass("mig.nvidia.com", mentions_gpus=True))
    told = at_the_door(place, SHARING)
    assert isinstance(told, Deny)
    assert [reason.code for reason in told.reasons] == [Code.UNKNOWN_GPU_RESOURCE]
    name = "deviceclass.resource.kubernetes.io/mig.nvidia.com"
    assert name in told.reasons[0].text
    lenient = replace(place.policy, defaults=Defaults(unknown_gpu=UnknownGpu.IGNORE), hash="p2")
    named = replace(place.policy, ignored_resources=frozenset({name}), hash="p3")
    for policy in (lenient, named):
        place.set_policy(policy)
        assert at_the_door(place, SHARING).demand.gpus == 0


def test_a_class_without_gpus_counts_nothing():
    place = world()
    place.set_device_class("nic", DeviceClass("nic"))
    place.set_claim(SHARED, spec(1, "nic"))
    assert at_the_door(place, SHARING).demand == bare()


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


def test_pods_that_are_only_counted_do_not_wait():
    place = world(exempt_namespaces=("system",))
    asking = make.pod(demand=bare(**{"x.dev/gpu": 1}), claims=(SHARING,))
    assert isinstance(resolve_demand(asking, make.ALICE, place), Deny)
    assert resolve_demand(asking._replace(namespace="system"), make.ALICE, place).demand.gpus == 0
    static = asking._replace(handling=Handling.MIRROR)
    assert isinstance(resolve_demand(static, make.ALICE, place), Deny), "any user may write the annotation"
    assert resolve_demand(static, Requester("system:node:n0"), place).demand.gpus == 0


def test_two_entries_for_one_claim_are_one_claim():
    place = world()
    place.set_claim(SHARED, spec(2))
    place.set_claim(TEMPLATE, spec(1))
    twice = (SHARING._replace(entry="a"), SHARING._replace(entry="b"))
    made = (MAKING._replace(entry="c"), MAKING._replace(entry="d"))
    assert at_the_door(place, *twice).demand.gpus == 2 * ONE_GPU
    assert at_the_door(place, *made).demand.gpus == 2 * ONE_GPU, "a template makes a claim for each"
    named_alike = (SHARING._replace(entry="a"), MAKING._replace(entry="shared"))
    assert at_the_door(place, *named_alike).demand.gpus == 3 * ONE_GPU


def six_devices(**more):
    """A node whose six devices have three names, and the same under a policy that weighs two of them."""
    place = make.world(make.policy(resources=BUILT_IN, **more), nodes=[make.node("n0", gpus=0)])
    mapped = DeviceClass("gpu.nvidia.com", "nvidia.com/gpu", mentions_gpus=True)
    place.set_device_class(mapped.name, mapped, Condition("", "gpu.nvidia.com"))
    place.set_slice("s", Slice("n0", "gpu.nvidia.com/n0", 1, (Device("gpu.nvidia.com", {}),) * 6))
    return place


IMPLICIT = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"


def test_all_names_of_a_class_share_one_capacity():
    place = six_devices()
    place.set_pod(make.resident(3, uid="by-resource", node="n0"))
    place.set_pod(make.resident(uid="by-class", node="n0", demand=demand_of({IMPLICIT: 1, PODS: 1}, BUILT_IN)))
    (stock,) = gpu_inventory(place.fleet, place.policy)
    assert (stock.resource, stock.capacity, stock.free) == (make.GPU, 6 * ONE_GPU, 2 * ONE_GPU)
    assert charged(place) == 4
    three = make.pod(demand=demand_of({IMPLICIT: 3, PODS: 1}, BUILT_IN))
    assert not place.fleet.fits("n0", place.with_claims(three).demand)
    place.remove_pod("by-class")
    assert place.fleet.fits("n0", place.with_claims(three).demand)


def test_a_class_requires_nodes_with_its_devices_by_dra():
    place = six_devices()
    place.set_node(make.node("plugged", gpus=8))
    asks = make.pod(demand=demand_of({IMPLICIT: 8, PODS: 1}, BUILT_IN))
    assert not place.fleet.with_capacity(place.with_claims(asks).demand, -1)
    assert place.fleet.fits("plugged", make.demand(8))


def test_the_older_of_two_classes_with_one_resource_has_a_separate_capacity():
    place = six_devices()
    newer = DeviceClass("our-gpus", "nvidia.com/gpu", "2026-01-01T00:00:00Z", mentions_gpus=True)
    place.set_device_class(newer.name, newer, Condition("", "others.example"))
    node = place.fleet.get("n0")
    assert node.allocatable.get("nvidia.com/gpu", 0) == 0, (
        "kube-scheduler gives the newer class's devices, of which there are none"
    )
    assert [offer.resource for offer in node.offers(BUILT_IN)] == [IMPLICIT]
    place.set_pod(resident("a", SHARING, node="n0"))
    place.set_claim(SHARED, spec(2))
    assert place.fleet.free("n0", IMPLICIT) == 4


def test_a_resource_without_a_weight_uses_the_capacity_of_its_class():
    weights = {name: weight for name, weight in BUILT_IN.items() if name != "nvidia.com/gpu"}
    place = six_devices()
    place.set_policy(make.policy(resources=weights))
    place.set_pod(make.resident(uid="u", node="n0", demand=demand_of({"nvidia.com/gpu": 2, PODS: 1}, weights)))
    assert (place.fleet.free("n0", IMPLICIT), charged(place)) == (4, 2)
