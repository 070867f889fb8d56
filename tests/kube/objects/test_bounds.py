"""What is too large is refused or left out by counts, and caches hold so many bytes."""

import json

import pytest

from tests import builders as b
from tests.attacks.shapes import pods
from tests.kube.support.created import PODS, at_the_door, resident
from webhook.core.model.labels import unpack
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.core.model.reason import Code
from webhook.kube.objects import bounds, keys
from webhook.kube.objects.large_objects import without_large_parts
from webhook.kube.pod.pods import InvalidPod, to_resident


def affinity(kind, terms):
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def node_terms(number):
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}] * number
    return affinity("nodeAffinity", {"nodeSelectorTerms": terms})


def pod_term(**more):
    return {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}, **more}


MOST = {
    "node selector terms": lambda more: b.pod(**node_terms(bounds.NODE_TERMS + more)),
    "terms about other pods": lambda more: b.pod(
        **affinity("podAntiAffinity", [pod_term()] * (bounds.POD_TERMS + more))
    ),
    "namespaces of a term": lambda more: b.pod(
        **affinity("podAffinity", [pod_term(namespaces=[f"n{i}" for i in range(bounds.POD_TERMS + more)])])
    ),
    "spread constraints": lambda more: b.pod(
        topologySpreadConstraints=[{"topologyKey": f"k{i}"} for i in range(bounds.SPREADS + more)]
    ),
    "tolerations": lambda more: b.pod(tolerations=[{"operator": "Exists"}] * (bounds.TOLERATIONS + more)),
    "labels of the node selector": lambda more: b.pod(
        nodeSelector={f"k{i}": "" for i in range(bounds.SELECTOR_TERMS + more)}
    ),
    "containers": lambda more: b.pod(
        containers=[b.container(), *({"name": f"c{i}"} for i in range(bounds.CONTAINERS - 1 + more))]
    ),
    "claims": lambda more: b.pod(resourceClaims=[{"name": f"c{i}"} for i in range(bounds.CLAIMS + more)]),
    "labels": lambda more: b.pod(labels={f"k{i}": "" for i in range(bounds.LABELS + more)}),
    "length of the decision": lambda more: b.pod(annotations={keys.DECISION: "x" * (bounds.MARK_BYTES + more)}),
    "length of what is required": lambda more: b.pod(annotations={keys.REQUIRES: "x" * (bounds.ASKED_BYTES + more)}),
}


@pytest.mark.parametrize("make", MOST.values(), ids=MOST)
def test_the_bound_itself_is_allowed_and_one_more_is_too_much(make):
    assert not isinstance(at_the_door(make(0)), InvalidPod)
    refused = at_the_door(make(1))
    assert isinstance(refused, InvalidPod)
    assert [reason.code for reason in refused.reasons] == [Code.TOO_LARGE]


def test_what_carries_a_decision_may_be_larger_by_the_nodes_that_were_chosen():
    patched = b.pod(annotations={keys.DECISION: "{}"}, **node_terms(bounds.MARKED_NODE_TERMS))
    assert not isinstance(at_the_door(patched), InvalidPod)


def test_of_many_problems_the_first_are_told_and_none_at_length():
    made = b.pod(containers=[b.container("c" * 5000, gpus="x" * 5000) for _ in range(100)])
    reasons = at_the_door(made).reasons
    assert len(reasons) == bounds.PROBLEMS
    assert all(len(reason.text) <= bounds.TEXT for reason in reasons)


def test_a_selector_of_any_length_is_left_to_kube_scheduler():
    long = pod_term(labelSelector={"matchExpressions": [{"key": "a", "operator": "In", "values": ["x" * 5000]}]})
    found = at_the_door(b.pod(**affinity("podAntiAffinity", [long])))
    assert found.has_open_constraints
    assert not found.topology


def test_a_pod_that_stands_keeps_off_others_by_so_many_terms_only():
    def standing(number):
        return resident(b.pod(node="n0", **affinity("podAntiAffinity", [pod_term()] * number)))

    assert len(standing(bounds.POD_TERMS).anti_affinity_rules) == bounds.POD_TERMS
    assert standing(bounds.POD_TERMS + 1).anti_affinity_rules == ()


def test_a_pod_with_too_many_labels_counts_by_those_that_say_whose_it_is():
    labels = {keys.TEAM: "a", keys.TIER: "guaranteed"} | {f"k{i}": "" for i in range(bounds.LABELS)}
    found = resident(b.pod(node="n0", labels=labels))
    assert unpack(found.packed) == {keys.TEAM: "a", keys.TIER: "guaranteed"}
    assert found.tier is not None


def test_a_stored_pod_of_very_many_containers_counts_its_gpus():
    others = [b.container(f"c{i}", gpus=None) for i in range(bounds.CONTAINERS)]
    assert resident(b.pod(node="n0", containers=[*others, b.container(gpus=3)])).demand.gpus == 3 * b.ONE_GPU


SHAPES = dict(pods(300_000))
UNCOUNTABLE = ("resources", "claims", "a long resource name")


def taken_from_a_watch(shape):
    shape["metadata"]["uid"], shape["spec"]["nodeName"] = "u", "n0"
    return to_resident(PODS.decode(without_large_parts(json.dumps(shape).encode())), BUILT_IN_RESOURCES)


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in UNCOUNTABLE])
def test_what_a_watch_trims_counts_as_before(name):
    try:
        found = taken_from_a_watch(SHAPES[name])
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error)):
            resident(SHAPES[name])
        return
    want = resident(SHAPES[name])
    told = ("uid", "namespace", "node", "team_label", "tier_label", "anti_affinity_rules", "is_managed")
    assert [getattr(found, each) for each in told] == [getattr(want, each) for each in told]
    assert found.demand.gpus == want.demand.gpus


@pytest.mark.parametrize("name", UNCOUNTABLE)
def test_a_stored_pod_that_cannot_be_counted_is_said_to_be_one(name):
    with pytest.raises(ValueError, match=r"more .* than any pod that was admitted"):
        taken_from_a_watch(SHAPES[name])


def test_a_cache_holds_so_many_bytes_and_forgets_the_oldest():
    cache = bounds.ByteCache()
    for number in range(1000):
        cache.keep(number, "value", 10_000)
    assert 90 < len(cache.known) <= bounds.CACHE_BYTES // 10_000
    assert 999 in cache.known
    assert 0 not in cache.known
    cache.keep("long", "value", bounds.CACHED_BYTES + 1)
    assert "long" not in cache.known
