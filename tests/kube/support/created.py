"""Translates manifests to core pods, for the tests of the translation."""

import json

import msgspec

from tests import builders as b
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.objects import objects
from webhook.kube.pod.existing import to_resident
from webhook.kube.pod.pods import InvalidPod, to_pod

PODS = msgspec.json.Decoder(objects.Pod)


def struct(manifest):
    return PODS.decode(json.dumps(manifest))


def pod_of(manifest, weights=BUILT_IN_RESOURCES):
    return to_pod(struct(manifest), namespace=manifest["metadata"].get("namespace", "vision"), weights=weights)


def resident(manifest):
    return to_resident(struct(manifest), BUILT_IN_RESOURCES)


def problems(manifest):
    found = pod_of(manifest)
    assert isinstance(found, InvalidPod), found
    return found.problems


def resources(requests=None, limits=None):
    return {"requests": requests or {}, "limits": limits or {}}


def with_resources(requests=None, limits=None, **spec):
    return b.pod(containers=[{"name": "train", "resources": resources(requests, limits)}], **spec)
