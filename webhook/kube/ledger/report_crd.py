"""The CustomResourceDefinition of Report: the one source for the server, `fairgate manifests` and the chart."""

from typing import Any

from webhook.kube.ledger.definition import column, definition
from webhook.kube.objects import keys

_Json = dict[str, Any]


def report_crd() -> _Json:
    """Return the definition."""
    columns = (
        column("Policy", ".policy.hash"),
        column("Enforce", ".policy.enforce"),
        column("Age", ".metadata.creationTimestamp", kind="date"),
    )
    return definition(keys.REPORT, keys.REPORTS, _schema(), columns=columns)


def _schema() -> _Json:
    text, texts, number = {"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "integer"}
    ranges = {
        "type": "object",
        "description": "How many pods started inside their likely range, earlier, and later or not.",
        "required": ["upToSeconds"],
        "properties": {
            "upToSeconds": {**number, "description": "Width of the ranges at most; 0 for wider ones."},
            **dict.fromkeys(("inside", "earlier", "later"), number),
        },
    }
    policy = {
        "type": "object",
        "description": "The policy in force, in the report `policy`.",
        "required": ["hash", "enforce"],
        "properties": {
            "hash": text,
            "enforce": {**text, "description": "off, shadow, warn or enforce; a flag may override the policy."},
            "documents": {**text, "description": "The policy as YAML, without comments."},
            "omitted": {**text, "description": "Why the documents are omitted."},
        },
    }
    replica = {
        "type": "object",
        "description": "The state of one process, updated every ten seconds.",
        "required": ["component", "at", "version", "policy", "enforce"],
        "properties": {
            **dict.fromkeys(("version", "policy", "enforce", "policyProblem", "election", "registration"), text),
            **dict.fromkeys(("autoscaling", "autoscalingUnsure", "moving", "idleProblem", "minimums", "stalled"), text),
            **dict.fromkeys(("autoscalingProblems", "leftOut"), texts),
            "component": {**text, "enum": ["server", "evictor"]},
            "at": {**text, "description": "Time of the update, by the process's own clock."},
            "leading": {"type": "boolean"},
            "certificate": {**text, "description": "The serving certificate as PEM, without the key."},
            "notReady": texts,
            "behind": texts,
            "rejecting": texts,
            "maintained": texts,
            "unreviewed": texts,
            "unevictable": texts,
            "unserved": texts,
            "notify": texts,
            "refused": {
                "type": "array",
                "description": "Requests refused since the start, by team and code; where policy notifies of them.",
                "items": {"type": "object", "properties": {"team": text, "code": text, "count": number}},
            },
        },
    }
    number = {"type": "integer"}
    room = {
        "type": "object",
        "description": "The cluster without names of pods, namespaces and users, in the report `room`.",
        "required": ["at", "format"],
        "properties": {
            "at": {**text, "description": "Time of the update, by the leader's clock."},
            "format": {**number, "description": "The version of the content's format."},
            **dict.fromkeys(("nodes", "pods", "waiting"), number),
            "content": {**text, "description": "JSON, compressed by zlib, in base64: `fairgate` commands read it."},
            "omitted": {**text, "description": "What is left out."},
        },
    }
    hours = ("guaranteed", "preemptible", "idle", "waiting", "lost", "moved", "saved", "refusedGpus", "heldIdle")
    amounts = {key: {"type": "number"} for key in hours}
    team = {"type": "object", "required": ["name"], "properties": {"name": text, "refused": number, **amounts}}
    period = {
        "type": "object",
        "properties": {
            **dict.fromkeys(("since", "until"), number),
            "observedHours": {"type": "number"},
            "teams": {"type": "array", "items": team},
        },
    }
    usage = {
        "type": "object",
        "description": "GPU-hours of teams, in the report `usage`: what the leader recorded.",
        "required": ["at"],
        "properties": {
            "at": text,
            "days": {
                "type": "object",
                "description": "Periods that end now, by their number of days.",
                "additionalProperties": period,
            },
        },
    }
    move = {
        "type": "object",
        "description": "A pod that was evicted so that its replacement runs on another node.",
        "required": ["at", "pod"],
        "properties": dict.fromkeys(("at", "pod", "team", "workload", "source", "destination", "for"), text),
    }
    return {
        "type": "object",
        "description": "The state that Fairgate publishes. Written by Fairgate only.",
        "properties": {
            "policy": policy,
            "room": room,
            "usage": usage,
            "replicas": {
                "type": "object",
                "description": "Processes by identity, in the report `replicas`.",
                "additionalProperties": replica,
            },
            "starts": {
                "type": "array",
                "description": "How likely starts came true, in the report `starts`.",
                "items": ranges,
            },
            "moves": {
                "type": "array",
                "description": "Pods that defragmentation moved, in the report `moves`: those of the last day.",
                "items": move,
            },
        },
    }
