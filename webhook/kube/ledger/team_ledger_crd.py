"""The CustomResourceDefinition of TeamLedger: the one source for the server, `fairgate manifests` and the chart."""

from typing import Any, Final

from webhook.kube.objects import keys

_Json = dict[str, Any]

_COLUMNS: Final = (
    ("Guaranteed", "guaranteed"),
    ("Limit", "limit"),
    ("Used", "used"),
    ("Reserved", "reserved"),
    ("Borrowed", "borrowed"),
    ("Preemptible", "preemptible"),
    ("Waiting", "waiting"),
)
"""For display, in GPUs. The team's name comes first, since the object's name may be escaped."""


def team_ledger_crd() -> _Json:
    """Return the definition.

    It has no status subresource: one write updates both the charges and the status.
    """
    return {
        "apiVersion": keys.EXTENSIONS_API,
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{keys.TEAM_LEDGERS}.{keys.OWN_GROUP}",
            "labels": {"app.kubernetes.io/name": "fairgate"},
        },
        "spec": {
            "group": keys.OWN_GROUP,
            "scope": "Cluster",
            "names": {
                "kind": keys.TEAM_LEDGER,
                "listKind": f"{keys.TEAM_LEDGER}List",
                "plural": keys.TEAM_LEDGERS,
                "singular": keys.TEAM_LEDGER.lower(),
            },
            "versions": [
                {
                    "name": keys.OWN_API.partition("/")[2],
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [
                        {"name": "Team", "type": "string", "jsonPath": ".status.team"},
                        *({"name": name, "type": "string", "jsonPath": f".status.{field}"} for name, field in _COLUMNS),
                        {"name": "In flight", "type": "integer", "jsonPath": ".status.inFlight", "priority": 1},
                        {"name": "Folded", "type": "string", "jsonPath": ".ledger.folded", "priority": 1},
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    "schema": {"openAPIV3Schema": _schema()},
                }
            ],
        },
    }


def _schema() -> _Json:
    text, whole = {"type": "string"}, {"type": "integer", "format": "int64"}
    entry = {
        "type": "object",
        "required": ["uid", "ns", "name", "gpus", "tier"],
        "properties": {
            **dict.fromkeys(("uid", "ns", "name", "tier", "label", "model", "user", "node", "bound", "owner"), text),
            "lingers": whole,
            "gpus": {**whole, "description": "In units of 1/840,000 of a GPU."},
            "rest": {**text, "description": "The remaining fraction of a unit, such as 2/3."},
            "requests": {"type": "object", "additionalProperties": whole, "x-kubernetes-map-type": "atomic"},
            "labels": {"type": "object", "additionalProperties": text, "x-kubernetes-map-type": "atomic"},
        },
    }
    status = {
        "type": "object",
        "description": "For display, in GPUs; a few seconds old while the team is idle.",
        "required": ["team"],
        "properties": {"team": text, **{field: text for _, field in _COLUMNS}, "inFlight": whole},
        "x-kubernetes-map-type": "atomic",
    }
    ledger = {
        "type": "object",
        "description": "Charges whose pods the watch has not delivered yet. Written by Fairgate only.",
        "properties": {
            "folded": {
                "type": "string",
                "pattern": "^[0-9]+$",
                "description": "A replica must have seen the pods up to this resourceVersion before it charges.",
            },
            "turn": whole,
            "inFlight": {"type": "array", "items": entry, "x-kubernetes-list-type": "atomic"},
        },
        "x-kubernetes-map-type": "atomic",
    }
    return {
        "type": "object",
        "description": "The GPUs that one team has charged. Do not edit or delete it while Fairgate runs.",
        "required": ["status"],
        "properties": {"status": status, "ledger": ledger},
    }
