"""Patches manifests and returns parts of the result."""

import json

import msgspec

from tests import builders as b
from webhook.kube.admission.pod_patch import apply, operations
from webhook.kube.objects import objects

NOW = "2026-01-01T00:00:00Z"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PODS = msgspec.json.Decoder(objects.Pod)


def patch_of(manifest, admit, now=NOW):
    return operations(PODS.decode(json.dumps(manifest)), admit, now_text=now)


def patched(manifest, admit, now=NOW):
    return apply(manifest, patch_of(manifest, admit, now))


def node_affinity(manifest):
    return manifest["spec"]["affinity"]["nodeAffinity"]


def terms_of(manifest):
    return node_affinity(manifest)[REQUIRED]["nodeSelectorTerms"]


def named(node):
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def expression(key, operator, *values):
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def with_terms(*terms, **more):
    return b.pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}, **more}})
