"""How held nodes are reported to the API server: the definition of HeldNodes, and the content of its one object.

A guard of bindings reads it (held_guards.py): the object must stay small and be found by its name, since the API
server reads it for every binding.
"""

from typing import Any

import msgspec

from webhook.core.model.policy import LabelSelector
from webhook.core.reclaim.held_nodes import HeldNodes
from webhook.kube.ledger.definition import definition
from webhook.kube.objects import keys
from webhook.kube.registration.registration import GLOB, pattern_of

_Json = dict[str, Any]


def held_nodes_crd() -> _Json:
    """Return the definition."""
    return definition(keys.HELD_NODES_KIND, keys.HELD_NODES, _schema())


def create_body(held: HeldNodes) -> bytes:
    """Return the object, to create it."""
    metadata = {"name": keys.HELD_NODES_NAME, "labels": dict(keys.OWN_LABELS)}
    made = {"apiVersion": keys.OWN_API, "kind": keys.HELD_NODES_KIND, "metadata": metadata, "spec": _spec(held)}
    return msgspec.json.encode(made)


def replace_patch(held: HeldNodes) -> bytes:
    """Return a JSON patch by which the object states this and nothing else."""
    return msgspec.json.encode([{"op": "add", "path": "/spec", "value": _spec(held)}])


def _spec(held: HeldNodes) -> _Json:
    return {
        "nodes": {node: list(uids) for node, uids in sorted(held.nodes.items())},
        "namespaces": [name for name in held.namespaces if not GLOB & set(name)],
        "namespacePatterns": [pattern_of(name) for name in held.namespaces if GLOB & set(name)],
        "namespaceSelectors": [_selector(each) for each in held.selectors],
        "exemptPatterns": [pattern_of(name) for name in held.exempt],
    }


def _selector(selector: LabelSelector) -> list[_Json]:
    return [
        {"key": each.key, "operator": each.operator.value, "values": list(each.values)}
        for each in selector.requirements
    ]


def _schema() -> _Json:
    texts = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}
    requirement = {
        "type": "object",
        "required": ["key", "operator", "values"],
        "properties": {"key": {"type": "string"}, "operator": {"type": "string"}, "values": texts},
    }
    selectors = {"type": "array", "items": {"type": "array", "items": requirement}, "x-kubernetes-list-type": "atomic"}
    spec = {
        "type": "object",
        "required": ["nodes", "namespaces", "namespacePatterns", "namespaceSelectors", "exemptPatterns"],
        "properties": {
            "nodes": {
                "type": "object",
                "description": "By the name of a node, the UIDs of the pods that it keeps its room for.",
                "additionalProperties": texts,
                "x-kubernetes-map-type": "atomic",
            },
            "namespaces": {**texts, "description": "Namespaces whose other pods are not bound to these nodes."},
            "namespacePatterns": {**texts, "description": "The same as regular expressions of their names."},
            "namespaceSelectors": {**selectors, "description": "The same by their labels."},
            "exemptPatterns": {**texts, "description": "Namespaces whose pods are bound in any case."},
        },
        "x-kubernetes-map-type": "atomic",
    }
    return {
        "type": "object",
        "description": "The nodes that keep their room. Written by the evictor only; delete it if no evictor runs.",
        "required": ["spec"],
        "properties": {"spec": spec},
    }
