"""The CustomResourceDefinition of TeamLedger: the one source for the server, `fairgate manifests` and the chart."""

from typing import Any, Final

from webhook.kube.ledger.definition import column, definition
from webhook.kube.objects import keys

_Json = dict[str, Any]

_COLUMNS: Final = (
    ("Guaranteed", "guaranteed"),
    ("Limit", "limit"),
    ("Used", "used"),
    ("Reserved", "reserved"),
    ("Preemptible", "preemptible"),
    ("Beyond share", "beyondShare"),
    ("Waiting", "waiting"),
)
"""For display, in GPUs. The team's name comes first, since the object's name may be escaped."""


def team_ledger_crd() -> _Json:
    """Return the definition.

    It has no status subresource: one write updates both the charges and the status.
    """
    columns = (
        column("Team", ".status.team"),
        *(column(name, f".status.{field}") for name, field in _COLUMNS),
        column("In line", ".status.queued", kind="integer"),
        column("GPUs in line", ".status.queuedGpus", priority=1),
        column("Lingering", ".status.lingering", priority=1),
        column("In flight", ".status.inFlight", kind="integer", priority=1),
        column("Folded", ".ledger.folded", priority=1),
        column("Age", ".metadata.creationTimestamp", kind="date"),
    )
    return definition(keys.TEAM_LEDGER, keys.TEAM_LEDGERS, _schema(), columns=columns)


def _schema() -> _Json:
    text, whole = {"type": "string"}, {"type": "integer", "format": "int64"}
    entry = {
        "type": "object",
        "required": ["uid", "ns", "name", "gpus", "tier"],
        "properties": {
            **dict.fromkeys(
                ("uid", "ns", "name", "tier", "label", "model", "user", "node", "bound", "owner", "team", "gang"), text
            ),
            "lingers": whole,
            "until": {**whole, "description": "Room that is kept for a pod of a gang until then, in Unix seconds."},
            "reclaims": {"type": "boolean", "description": "The pod keeps its gate until reclaim has made its room."},
            "claims": {"type": "array", "items": text, "x-kubernetes-list-type": "atomic"},
            "own": {**text, "description": "What a pod with claims asks for without them, in GPUs."},
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
        "properties": {
            "team": text,
            **{field: text for _, field in _COLUMNS},
            "inFlight": whole,
            "queued": {
                **whole,
                "description": "Pods that wait in line; they are charged nothing.",
            },
            "queuedGpus": text,
            "lingering": {**text, "description": "The part of reserved that pods deleted by force left."},
        },
        "x-kubernetes-map-type": "atomic",
    }
    epochs = {"type": "object", "additionalProperties": whole, "x-kubernetes-map-type": "atomic"}
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
            "epoch": {**whole, "description": "Moves of the team between its own ledger and those of departments."},
            "home": {**text, "description": "The department whose ledger takes the team's charges while epoch is odd."},
            "left": {**epochs, "description": "Departments whose ledgers may still hold charges of the team."},
            "members": {
                **epochs,
                "description": "Teams of a department; it takes charges of those whose epoch is odd.",
            },
        },
        "x-kubernetes-map-type": "atomic",
    }
    return {
        "type": "object",
        "description": "The GPUs that a team, or a department's teams, have charged. Do not edit or delete it.",
        "required": ["status"],
        "properties": {"status": status, "ledger": ledger},
    }
