"""Reports and their definition.

What the CustomResourceDefinitions of Fairgate's own kinds have in common.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from webhook.core.explain.line_rows import EarlierWaits, TeamWaits
from webhook.core.model.amounts import TeamName, format_gpus, parse_amount
from webhook.kube.objects import keys

_Json = dict[str, Any]
_MOST_NAMED: Final = 5


def definition(kind: str, plural: str, schema: _Json, *, columns: Iterable[_Json] = ()) -> _Json:
    """Return the definition of a cluster-scoped kind in its one version; `columns` are for `kubectl get`."""
    version = {"name": keys.OWN_API.partition("/")[2], "served": True, "storage": True}
    shown = {"additionalPrinterColumns": list(columns)} if columns else {}
    return {
        "apiVersion": keys.EXTENSIONS_API,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{keys.OWN_GROUP}", "labels": dict(keys.OWN_LABELS)},
        "spec": {
            "group": keys.OWN_GROUP,
            "scope": "Cluster",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [{**version, **shown, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def schema_of(struct: type[msgspec.Struct]) -> _Json:
    """Return the schema of a struct as the API server takes it: of its types, and the first lines of descriptions."""
    found = msgspec.json.schema(struct)
    return _structural(found, found.get("$defs", {}))


def _structural(written: Mapping[str, Any], named: Mapping[str, Any]) -> _Json:
    """Return a part of a JSON schema with what it refers to in place, and without what is null where it is missing."""
    parts = [each for each in written.get("anyOf", (written,)) if each.get("type") != "null"]
    part = named[parts[0]["$ref"].rpartition("/")[2]] if "$ref" in parts[0] else parts[0]
    kind = part.get("type", "string")  # an enumeration has none
    made: _Json = {"type": kind, **({"format": "int64"} if kind == "integer" else {})}
    if description := written.get("description") or part.get("description"):
        made["description"] = description.partition("\n\n")[0]
    made |= {key: part[key] for key in ("required", "pattern") if part.get(key)}
    if "properties" in part:
        made["properties"] = {key: _structural(each, named) for key, each in part["properties"].items()}
    made |= {key: _structural(part[key], named) for key in ("items", "additionalProperties") if part.get(key)}
    return made


def column(name: str, path: str, *, kind: str = "string", **more: int) -> _Json:
    """Return a column of `kubectl get`; `priority` 1 shows it with -o wide only."""
    return {"name": name, "type": kind, "jsonPath": path, **more}


def why_unfit(found: Mapping[str, Any], needed: _Json) -> str | None:
    """Return why a definition in the cluster does not do for this version; None if it does.

    The API server drops, without an error, what a definition does not have: charges that are written would be lost.
    """
    spec, wanted = found["spec"], needed["spec"]
    if (spec["scope"], spec["names"]["kind"]) != (wanted["scope"], wanted["names"]["kind"]):
        return f"it defines {spec['scope'].lower()} objects of kind {spec['names']['kind']}"
    (version,) = wanted["versions"]
    served = [each for each in spec["versions"] if each["name"] == version["name"] and each["served"]]
    if not served:
        return f"it does not serve version {version['name']}"
    if "status" in (served[0].get("subresources") or {}):
        return "its status is a subresource"
    lacking = [*_lacking(served[0]["schema"]["openAPIV3Schema"], version["schema"]["openAPIV3Schema"], "")]
    more = ", …" if len(lacking) > _MOST_NAMED else ""
    return f"it lacks the fields {', '.join(lacking[:_MOST_NAMED])}{more}" if lacking else None


def _lacking(found: Mapping[str, Any], wanted: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the fields that a schema lacks, or has with another type."""
    if found.get("x-kubernetes-preserve-unknown-fields"):
        return
    if found.get("type") != wanted.get("type"):
        yield path.removeprefix(".")
        return
    for key, field in (wanted.get("properties") or {}).items():
        yield from _lacking((found.get("properties") or {}).get(key) or {}, field, f"{path}.{key}")
    for part in ("items", "additionalProperties"):
        if part in wanted:
            yield from _lacking(found.get(part) or {}, wanted[part], f"{path}[]")


# The CustomResourceDefinition of Report: the one source for the server, `fairgate manifests` and the chart.


def report_crd() -> _Json:
    """Return the definition."""
    columns = (
        column("Policy", ".policy.hash"),
        column("Enforce", ".policy.enforce"),
        column("Age", ".metadata.creationTimestamp", kind="date"),
    )
    return definition(keys.REPORT, keys.REPORTS, schema_of(Report), columns=columns)


# Report, the object in which Fairgate publishes its state: the policy in force, one entry for each process, the room.
#
# There are Reports `policy`, `replicas`, `room`, `starts`, `usage`, `moves`: cluster-scoped, so no tenant can forge
# one. Every write is a merge patch of the writer's own part, so writers never conflict. Texts are truncated to a fixed
# length.


PATH: Final = f"/apis/{keys.OWN_API}/{keys.REPORTS}"
POLICY: Final = "policy"
REPLICAS: Final = "replicas"
STARTS: Final = "starts"
ROOM: Final = "room"
USAGE: Final = "usage"
MOVES: Final = "moves"

SILENT_SECONDS: Final = 35.0
"""A process without a report for so long is gone, or cannot write: processes report every ten seconds."""

EVICTOR: Final = "evictor"
"""The component of a process that evicts."""

MAX_POLICY_BYTES: Final = 1_000_000
"""The largest policy that is published: etcd's limit for an object is 1.5 MiB."""
MAX_ROOM_BYTES: Final = 1_000_000
ROOM_FORMAT: Final = 2
"""The largest content of the room that is published, and the version of its format."""
MAX_TEXT_CHARACTERS: Final = 500
"""Characters of a reason in a report; the log has it in full."""
MAX_TEAMS: Final = 20
"""Teams that a replica lists."""
MAX_NODES: Final = 20
"""Nodes that a replica lists."""
MAX_POOLS: Final = 20
"""Pools that a replica lists."""
MAX_REFUSED: Final = 500
"""Teams and codes of refused requests that a replica lists."""
MAX_CERTIFICATE_CHARACTERS: Final = 16_384
"""Characters of a certificate with its intermediates."""

_UNSTORED: Final[dict[str, Any]] = {"managedFields": [{}]}
"""managedFields of one empty entry: the API server then stores none; otherwise they grow with each replica."""


class PolicyReport(msgspec.Struct, frozen=True, rename="camel"):
    """The policy in force, in the report `policy`."""

    hash: str
    enforce: Annotated[str, Meta(description="off, shadow, warn or enforce; a flag may override the policy.")]
    documents: Annotated[str, Meta(description="The policy as YAML, without comments.")] = ""
    omitted: Annotated[str, Meta(description="Why the documents are omitted.")] = ""


class RefusedReport(msgspec.Struct, frozen=True):
    """How many requests of a team a process refused with one code since its start."""

    team: str
    code: str
    count: int


class ReplicaReport(msgspec.Struct, frozen=True, rename="camel"):
    """The state of one process, updated every ten seconds. Texts are empty if there is nothing to report.

    `not_ready` has the reason of each readiness condition that does not hold, `behind` the teams whose ledger is newer
    than this replica's view of the pods for two reports in a row, `rejecting` the nodes that reject pods, from the
    leader, `stalled` that the queue stands still, `maintained` nodes that operators change, `unreviewed` the namespaces
    that others exclude from the webhooks, by number, `unevictable` the first borrowing pods that the evictor cannot
    evict, with the reason, `unserved` the first waiting pods for which room was made without effect; `moving` is why it
    cannot plan moves. They are lists: a merge patch replaces lists completely. `certificate` is PEM, the serving
    certificate first. `autoscaling` and what begins with it are what the leader knows of autoscalers. `refused` are
    counts, where policy has messages of refusals; `notify` says why messages to people do not reach a target.
    `idle_problem` is why the evictor does not know the use of GPUs, `minimums` how many workloads are to keep some
    replicas and `bypassed` how many pods have no decision, both from the leading server, `left_out` the kinds that the
    process may not read and works without. `history` is why usage is not written.
    """

    component: Annotated[str, Meta(description="server or evictor")]
    at: Annotated[str, Meta(description="Time of the update, by the process's own clock.")]
    version: str
    policy: str
    enforce: str
    policy_problem: str = ""
    leading: bool = False
    election: str = ""
    not_ready: list[str] = []
    certificate: Annotated[str, Meta(description="The serving certificate as PEM, without the key.")] = ""
    registration: str = ""
    behind: list[str] = []
    rejecting: list[str] = []
    stalled: str = ""
    maintained: list[str] = []
    unreviewed: list[str] = []
    unevictable: list[str] = []
    unserved: list[str] = []
    moving: str = ""
    idle_problem: str = ""
    autoscaling: str = ""
    autoscaling_problems: list[str] = []
    autoscaling_unsure: str = ""
    minimums: str = ""
    bypassed: str = ""
    left_out: list[str] = []
    refused: list[RefusedReport] = []
    notify: list[str] = []
    history: str = ""


class WaitsReport(msgspec.Struct, frozen=True):
    """How many seconds the last 20 pods of a team with so many GPUs waited in the queue, the last one last."""

    team: str
    gpus: str
    seconds: list[int] = []


class RoomReport(msgspec.Struct, frozen=True, rename="camel"):
    """The cluster without names of pods, namespaces and users, in the report `room`."""

    at: Annotated[str, Meta(description="Time of the update, by the leader's clock.")]
    format: Annotated[int, Meta(description="The version of the content's format.")]
    nodes: int = 0
    pods: int = 0
    waiting: int = 0
    content: Annotated[str, Meta(description="JSON, compressed by zlib, in base64: `fairgate` commands read it.")] = ""
    omitted: Annotated[str, Meta(description="What is left out, since it would be too large.")] = ""


class TeamHours(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """GPU-hours of a team; `refused` counts requests, and `refusedGpus` the GPUs that they asked for."""

    name: str
    guaranteed: float = 0.0
    preemptible: float = 0.0
    idle: float | None = None
    waiting: float = 0.0
    lost: float = 0.0
    moved: float = 0.0
    saved: float = 0.0
    refused: int = 0
    refused_gpus: float = 0.0
    held_idle: float | None = None


class UsagePeriod(msgspec.Struct, frozen=True, rename="camel"):
    """The usage of all teams in a period, whose times are in Unix seconds; of that the observed hours were recorded."""

    since: int
    until: int
    observed_hours: float
    teams: list[TeamHours] = []


class UsageReport(msgspec.Struct, frozen=True, rename="camel"):
    """GPU-hours of teams, in the report `usage`: what the leader recorded."""

    at: str
    days: Annotated[dict[str, UsagePeriod], Meta(description="Periods that end now, by their number of days.")] = {}


class MoveEntry(msgspec.Struct, frozen=True, rename={"made_for": "for"}):
    """One move: the pod that was evicted for it, its node, and the node that kept a place for its replacement.

    `workload` is the UID of the controller, `made_for` the pod that the room was made for, "" for none that existed.
    """

    at: str
    pod: str
    team: str
    workload: str
    source: str
    destination: str
    made_for: str = ""


class Report(msgspec.Struct, frozen=True):
    """The state that Fairgate publishes, and only Fairgate writes: each Report has the part of its name."""

    policy: PolicyReport | None = None
    replicas: Annotated[dict[str, ReplicaReport], Meta(description="Processes by identity.")] = {}
    starts: Annotated[list[WaitsReport], Meta(description="How long pods waited that started from the queue.")] = []
    room: RoomReport | None = None
    usage: UsageReport | None = None
    moves: Annotated[list[MoveEntry], Meta(description="Pods that defragmentation moved in the last day.")] = []


_decoder: Final = msgspec.json.Decoder(Report)


def decode(body: bytes) -> Report:
    """Decode a Report. Raises ValueError if the body is not one."""
    return _decoder.decode(body)


def report_patch(name: str, report: PolicyReport | RoomReport | UsageReport) -> dict[str, Any]:
    """Return a merge patch with all of the report of this name."""
    return {"metadata": _UNSTORED, name: msgspec.to_builtins(report)}


def starts_patch(waits: EarlierWaits) -> dict[str, Any]:
    """Return how long pods waited as a merge patch, which replaces what was written before."""
    rows = [WaitsReport(each.team, format_gpus(each.gpus), list(each.seconds)) for each in waits]
    return {"metadata": _UNSTORED, STARTS: msgspec.to_builtins(rows)}


def moves_patch(moves: Iterable[MoveEntry]) -> dict[str, Any]:
    """Return the moves as a merge patch, which replaces what was written before."""
    return {"metadata": _UNSTORED, MOVES: msgspec.to_builtins(list(moves))}


def waits_of(report: Report | None) -> Iterator[TeamWaits]:
    """Yield how long pods waited; nothing where that is not published."""
    for row in report.starts if report is not None else ():
        with suppress(ValueError):
            yield TeamWaits(TeamName(row.team), parse_amount(row.gpus), tuple(row.seconds))


def evictor_leads(report: Report, *, now: float | None) -> bool:
    """Whether an evictor leads, by the reports of the processes; `now` is in seconds of Unix time."""
    for each in report.replicas.values():
        at = read_at(each.at)
        is_fresh = now is None or (at is not None and now - at <= SILENT_SECONDS)
        if each.component == EVICTOR and each.leading and is_fresh:
            return True
    return False


def replica_patch(identity: str, report: ReplicaReport | None, *, gone: Iterable[str] = ()) -> dict[str, Any]:
    """Return a merge patch that writes a process's entry (None: removes it) and removes the entries in `gone`."""
    entries: dict[str, Any] = dict.fromkeys(gone)
    entries[identity] = None if report is None else msgspec.to_builtins(report)
    return {"metadata": _UNSTORED, "replicas": entries}


def new_report(name: str, patch: Mapping[str, Any]) -> bytes:
    """Return the Report to create when a patch finds it missing."""
    part = _present(patch[name]) if name == REPLICAS else patch[name]
    head = {"apiVersion": keys.OWN_API, "kind": keys.REPORT, "metadata": {"name": name}}
    return msgspec.json.encode({**head, name: part})


def shortened(text: str) -> str:
    """Return a text truncated to the limit of a report."""
    return text if len(text) <= MAX_TEXT_CHARACTERS else f"{text[: MAX_TEXT_CHARACTERS - 1]}…"


def written_at(seconds: float) -> str:
    """Return a Unix time as text for a report."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_at(text: str) -> float | None:
    """Return the Unix time of a report's text; None if it is malformed."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _present(replicas: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry for name, entry in replicas.items() if entry is not None}
