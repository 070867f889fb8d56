"""Objects over a size limit are refused or reduced, and caches are limited in bytes."""

import pytest

from tests import builders as b
from tests.kube.support.created import pod_of, resident
from webhook.core.model.reasons import Code
from webhook.kube.objects import bounds, keys
from webhook.kube.pod.pods import InvalidPod


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
    "names of claims": lambda more: b.pod(
        resourceClaims=[{"name": "c", "resourceClaimName": "x" * (bounds.CLAIM_NAMES - 1 + more)}]
    ),
    "labels": lambda more: b.pod(labels={f"k{i}": "" for i in range(bounds.LABELS + more)}),
    "length of the decision": lambda more: b.pod(annotations={keys.DECISION: "x" * (bounds.DECISION_BYTES + more)}),
    "length of the required capabilities": lambda more: b.pod(
        annotations={keys.REQUIRES: "x" * (bounds.REQUEST_BYTES + more)}
    ),
}


@pytest.mark.parametrize("make", MOST.values(), ids=MOST)
def test_the_limit_is_allowed_and_one_more_is_refused(make):
    assert not isinstance(pod_of(make(0)), InvalidPod)
    refused = pod_of(make(1))
    assert isinstance(refused, InvalidPod)
    assert [reason.code for reason in refused.reasons] == [Code.TOO_LARGE]


def test_affinity_of_a_pod_with_a_decision_may_be_larger():
    patched = b.pod(annotations={keys.DECISION: "{}"}, **node_terms(bounds.DECIDED_NODE_TERMS))
    assert not isinstance(pod_of(patched), InvalidPod)


def test_problems_are_limited_in_number_and_length():
    made = b.pod(containers=[b.container("c" * 5000, gpus="x" * 5000) for _ in range(100)])
    reasons = pod_of(made).reasons
    assert len(reasons) == bounds.PROBLEMS
    assert all(len(reason.text) <= bounds.TEXT for reason in reasons)


def test_a_long_label_selector_is_left_to_kube_scheduler():
    long = pod_term(labelSelector={"matchExpressions": [{"key": "a", "operator": "In", "values": ["x" * 5000]}]})
    found = pod_of(b.pod(**affinity("podAntiAffinity", [long])))
    assert found.has_open_constraints
    assert not found.topology


def test_anti_affinity_of_an_existing_pod_is_limited():
    def standing(number):
        return resident(b.pod(node="n0", **affinity("podAntiAffinity", [pod_term()] * number)))

    assert len(standing(bounds.POD_TERMS).anti_affinity_rules) == bounds.POD_TERMS
    assert standing(bounds.POD_TERMS + 1).anti_affinity_rules == ()


def test_a_cache_is_limited_in_bytes_and_drops_the_oldest():
    cache = bounds.ByteCache()
    for number in range(1000):
        cache.keep(number, "value", 10_000)
    assert 90 < len(cache.known) <= bounds.CACHE_BYTES // 10_000
    assert 999 in cache.known
    assert 0 not in cache.known
    cache.keep("long", "value", bounds.CACHED_BYTES + 1)
    assert "long" not in cache.known
