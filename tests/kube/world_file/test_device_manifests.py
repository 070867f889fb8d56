"""DRA objects among manifests: each version is read, status is not, and what is malformed is refused."""

import msgspec
import pytest

from tests.core.support import claims
from webhook.core.devices.claim_users import ClaimKey
from webhook.core.model.amounts import ONE_GPU
from webhook.core.model.demand import ClaimRef
from webhook.kube.world_file.stream import read_devices

REQUEST = {"deviceClassName": "gpu.nvidia.com", "count": 2}


def document(kind, spec, version="v1", **more):
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": {"name": "it"}, "spec": spec, **more}


def claim(version, request):
    return document("ResourceClaim", {"devices": {"requests": [request]}}, version)


@pytest.mark.parametrize(
    "written",
    [
        claim("v1", {"name": "r", "exactly": REQUEST}),
        claim("v1beta2", {"name": "r", "exactly": REQUEST}),
        claim("v1beta1", {"name": "r", **REQUEST}),
        claim("v1beta1", {"name": "r", "firstAvailable": [{"name": "s", **REQUEST}]}),
        {**claim("v1", {"name": "r", "exactly": REQUEST}), "status": {"allocation": 1}},
    ],
    ids=["v1", "v1beta2", "v1beta1", "v1beta1 with alternatives", "a status that no one may write"],
)
def test_a_claim_of_each_version_counts_the_same(written):
    place = claims.world()
    read_devices({**written, "metadata": {"name": "it"}}, namespace="team-a")(place)
    assert claims.resolve_for(place, ClaimRef(claim="it")).demand.gpus == 2 * ONE_GPU


def test_a_template_has_its_own_namespace():
    written = document("ResourceClaimTemplate", {"spec": {"devices": {"requests": [{"exactly": REQUEST}]}}})
    written["metadata"]["namespace"] = "nlp"
    place = claims.world()
    read_devices(written, namespace="vision")(place)
    assert ClaimKey("template", "nlp", "it") in place.claims


def test_a_claim_that_the_world_has_stays():
    place = claims.world()
    small, large = (claim("v1", {"exactly": {**REQUEST, "count": count}}) for count in (1, 8))
    for each in (small, large):
        read_devices(each, namespace="team-a")(place)
    assert claims.resolve_for(place, ClaimRef(claim="it")).demand.gpus == ONE_GPU


def test_a_class_is_read_with_its_resource():
    place = claims.world()
    read_devices(document("DeviceClass", {"extendedResourceName": "example.com/gpu"}), namespace="vision")(place)
    assert place.claims.classes.knows("example.com/gpu")


@pytest.mark.parametrize("api", ["v1", "apps/v1", "example.com/v1"])
def test_other_objects_are_none(api):
    assert read_devices({"apiVersion": api, "kind": "ResourceClaim", "spec": {}}, namespace="vision") is None
    assert read_devices(document("ResourceSlice", {}), namespace="vision") is None


def test_a_malformed_claim_is_refused():
    with pytest.raises(msgspec.ValidationError):
        read_devices(claim("v1", {"exactly": {"count": "many"}}), namespace="vision")


def test_the_pods_of_a_pod_group_share_its_claims():
    place = claims.world()
    template = document("ResourceClaimTemplate", {"spec": {"devices": {"requests": [{"exactly": REQUEST}]}}})
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "both"},
        "spec": {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "it"}]},
    }
    for each in (template, group):
        read_devices(each, namespace="team-a")(place)
    member = ClaimRef(template="it", group="both", entry="g")
    place.set_pod(claims.resident("a", member))
    assert claims.resolve_for(place, member).demand.gpus == 0
    assert claims.resolve_for(place, member._replace(entry="h")).demand.gpus == 2 * ONE_GPU


def test_a_compute_domain_names_the_template_of_its_channels_which_are_no_gpus():
    place = claims.world()
    domain = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": "imex", "namespace": "team-a"},
        "spec": {"numNodes": 2, "channel": {"resourceClaimTemplate": {"name": "channel"}}},
    }
    read_devices(domain, namespace="vision")(place)
    assert claims.resolve_for(place, ClaimRef(template="channel")).demand.gpus == 0
    assert read_devices({**domain, "spec": {"numNodes": 2}}, namespace="vision") is None
