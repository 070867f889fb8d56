"""What a pod counts with its claims, and what is refused or retried."""

from dataclasses import replace

import pytest

from tests.core.support import make
from tests.core.support.claims import (
    GPU_CLASS,
    MAKING,
    SHARED,
    SHARING,
    TEMPLATE,
    bare,
    resident,
    resolve_for,
    spec,
    world,
)
from webhook.core.admission.pools import resolve_demand
from webhook.core.model.amounts import ONE_GPU
from webhook.core.model.decision import Deny, Retry
from webhook.core.model.gpu_shares import DeviceClass
from webhook.core.model.pod import Handling, Requester
from webhook.core.model.policy import Defaults, UnknownGpu
from webhook.core.model.reasons import Code


def test_claims_count_at_admission_and_counting_twice_changes_nothing():
    place = world()
    place.set_claim(SHARED, spec(2))
    pod = resolve_for(place, SHARING)
    assert pod.demand.gpus == 2 * ONE_GPU
    assert pod.demand.devices == ((GPU_CLASS.implicit_resource, 2),)
    assert resolve_demand(pod, make.ALICE, place) == pod
    place.set_pod(resident("a", SHARING))
    again = resolve_demand(pod, make.ALICE, place)
    assert (again.demand.gpus, again.demand.devices) == (0, pod.demand.devices), "another pod is charged"


@pytest.mark.parametrize(
    ("claims", "want"),
    [
        ((SHARING,), "not known yet: ResourceClaim team-a/shared;"),
        ((MAKING, SHARING), "not known yet: ResourceClaimTemplate team-a/made, ResourceClaim team-a/shared;"),
    ],
)
def test_unknown_objects_are_retried(claims, want):
    resolved = resolve_for(world(), *claims)
    assert isinstance(resolved, Retry)
    assert resolved.reason.code is Code.CLAIM_UNKNOWN
    assert resolved.reason.text.startswith(want)


def test_an_unknown_class_is_retried_and_a_class_without_a_weight_is_refused():
    place = world()
    place.set_claim(SHARED, spec(1, "mig.nvidia.com"))
    assert isinstance(resolve_for(place, SHARING), Retry)
    place.set_device_class("mig.nvidia.com", DeviceClass("mig.nvidia.com", mentions_gpus=True))
    resolved = resolve_for(place, SHARING)
    assert isinstance(resolved, Deny)
    assert [reason.code for reason in resolved.reasons] == [Code.UNKNOWN_GPU_RESOURCE]
    name = "deviceclass.resource.kubernetes.io/mig.nvidia.com"
    assert name in resolved.reasons[0].text
    lenient = replace(place.policy, defaults=Defaults(unknown_gpu=UnknownGpu.IGNORE), hash="p2")
    named = replace(place.policy, ignored_resources=frozenset({name}), hash="p3")
    for policy in (lenient, named):
        place.set_policy(policy)
        assert resolve_for(place, SHARING).demand.gpus == 0


def test_a_class_without_gpus_counts_nothing():
    place = world()
    place.set_device_class("nic", DeviceClass("nic"))
    place.set_claim(SHARED, spec(1, "nic"))
    assert resolve_for(place, SHARING).demand == bare()


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
    assert resolve_for(place, *twice).demand.gpus == 2 * ONE_GPU
    assert resolve_for(place, *made).demand.gpus == 2 * ONE_GPU, "a template makes a claim for each"
    named_alike = (SHARING._replace(entry="a"), MAKING._replace(entry="shared"))
    assert resolve_for(place, *named_alike).demand.gpus == 3 * ONE_GPU
