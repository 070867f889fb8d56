"""Large objects of a watch count the same without their large parts."""

import json

import pytest

from tests.attacks.shapes import pods
from tests.kube.support.created import PODS, resident
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.objects.large_objects import without_large_parts
from webhook.kube.pod.existing_pods import to_resident

SHAPES = dict(pods(300_000))
UNCOUNTABLE = ("resources", "claims", "a long resource name")


def decoded_by_a_watch(shape):
    shape["metadata"]["uid"], shape["spec"]["nodeName"] = "u", "n0"
    return to_resident(PODS.decode(without_large_parts(json.dumps(shape).encode())), BUILT_IN_RESOURCES)


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in UNCOUNTABLE])
def test_trimming_does_not_change_what_counts(name):
    try:
        found = decoded_by_a_watch(SHAPES[name])
    except ValueError as error:
        with pytest.raises(ValueError, match=str(error)):
            resident(SHAPES[name])
        return
    want = resident(SHAPES[name])
    compared = ("uid", "namespace", "node", "team_label", "tier_label", "anti_affinity_rules", "is_managed")
    assert [getattr(found, each) for each in compared] == [getattr(want, each) for each in compared]
    assert found.demand.gpus == want.demand.gpus


@pytest.mark.parametrize("name", UNCOUNTABLE)
def test_a_stored_pod_that_cannot_be_trimmed_is_an_error(name):
    with pytest.raises(ValueError, match="longer than in any admitted pod"):
        decoded_by_a_watch(SHAPES[name])
