"""TeamLedger and its definition.

TeamLedger, the object with one team's charges in flight: its name, its fields, decoding and encoding.

`status` is for display and never read back; `ledger` is exact. Keys of an entry are short, since every write contains
all entries. They are one atomic list, and managedFields is sent as one empty entry so that it is not stored.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from hashlib import sha256
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from webhook.core.explain.team_rows import DepartmentRow, TeamRow, amounts
from webhook.core.model.amounts import (
    DepartmentName,
    GangId,
    GpuModel,
    Namespace,
    NodeName,
    ResourceName,
    TeamName,
    Uid,
    User,
    format_gpus,
    parse_amount,
)
from webhook.core.model.constraints import Tier, pack
from webhook.core.model.decision import Charge
from webhook.core.model.demand import ClaimRef, Demand
from webhook.core.model.pod import NO_LABELS, Owner, Resident
from webhook.core.quota.charges import InFlightCharge, LedgerRecord
from webhook.core.quota.usage import NO_MOVES, Moves
from webhook.kube.ledger.reports import column, definition, schema_of
from webhook.kube.objects import keys, objects

_K = TypeVar("_K", bound=str)
_V = TypeVar("_V", int, str)

_DNS_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_REST: Final = re.compile("[1-9][0-9]{0,99}/[1-9][0-9]{0,99}")
_UNSTORED: Final[tuple[dict[str, str], ...]] = ({},)
"""managedFields of one empty entry: the API server then stores none, half a kilobyte per write."""

MAX_LEDGER_BYTES: Final = 1_000_000
"""The largest object that is written: etcd's limit is 1.5 MiB. A few thousand charges, in flight for about a second."""

_MAX_CHARACTERS: Final = 300
"""Limit for each of an entry's labels, its requests (devices first) and its owner: tenants choose them, and a team has
one object for all. None of them is needed for the team's usage."""

_MAX_LEFT: Final = 100
"""The same for the names in an entry that stays for minutes, of a pod that was deleted by force."""


class Entry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One charge in flight.

    `requests` are as the core counts them, `label` is the pod's tier label; `labels` are those of topology spread
    rules, which count the pod before the watch delivers it. `lingers` is for how many seconds its node may still run a
    pod that was force-deleted. `team` is set in the ledger of a department. `until` and `gang` are set on room that is
    kept for a pod of a gang. `reclaims` is set for a pod that keeps its gate until reclaim has taken back its room.
    `claims` are a pod's ResourceClaims, as `CLAIM` or `PODGROUP/ENTRY/TEMPLATE`; `own` (GPUs) and `requests` are then
    what it asks for without them: it is charged for a claim itself once no other user is.
    """

    uid: Uid
    ns: Namespace
    name: str
    gpus: Annotated[int, Meta(description="In units of 1/840,000 of a GPU.")]
    tier: Tier
    rest: Annotated[str, Meta(description="The remaining fraction of a unit, such as 2/3.")] = ""
    requests: dict[ResourceName, int] = {}
    label: str | None = None
    model: GpuModel | None = None
    user: User | None = None
    node: NodeName | None = None
    bound: NodeName | None = None
    owner: str | None = None
    labels: dict[str, str] = {}
    lingers: int = 0
    team: str = ""
    until: Annotated[int, Meta(description="GPUs are reserved for a pod of a gang until then, in Unix seconds.")] = 0
    gang: str = ""
    reclaims: Annotated[bool, Meta(description="The pod stays queued until reclaim has freed its GPUs.")] = False
    claims: list[str] = []
    own: Annotated[str, Meta(description="What a pod with claims asks for without them, in GPUs.")] = ""


class Ledger(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Charges whose pods the watch has not delivered yet. Written by Fairgate only.

    `epoch`, `home`, `left` and `members` say which ledger takes a team's charges (webhook/core/quota/usage.py).
    """

    folded: Annotated[
        str,
        Meta(
            description="A replica must have seen the pods up to this resourceVersion before it charges.",
            extra_json_schema={"pattern": "^[0-9]+$"},
        ),
    ] = "0"
    turn: int = 0
    in_flight: list[Entry] = []
    epoch: Annotated[
        int | UnsetType, Meta(description="Moves of the team between its own ledger and those of departments.")
    ] = UNSET
    home: Annotated[
        DepartmentName | UnsetType,
        Meta(description="The department whose ledger takes the team's charges while epoch is odd."),
    ] = UNSET
    left: Annotated[
        dict[DepartmentName, int] | UnsetType,
        Meta(description="Departments whose ledgers may still hold charges of the team."),
    ] = UNSET
    members: Annotated[
        dict[TeamName, int] | UnsetType,
        Meta(description="Teams of a department; it takes charges of those whose epoch is odd."),
    ] = UNSET


class Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """For display, in GPUs; a few seconds old while the team is idle. `used` is everything charged."""

    team: str
    guaranteed: str = ""
    limit: str = ""
    used: str = ""
    reserved: str = ""
    preemptible: str = ""
    beyond_share: str = ""
    waiting: str = ""
    in_flight: int = 0
    queued: Annotated[int, Meta(description="Pods that are queued; they are charged nothing.")] = 0
    queued_gpus: str = ""
    lingering: Annotated[str, Meta(description="The part of reserved that pods deleted by force left.")] = ""


class TeamLedger(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A TeamLedger as the API server gives it."""

    metadata: objects.ObjectMeta
    status: Status
    ledger: Ledger = Ledger()

    @property
    def team(self) -> TeamName:
        """The team's name."""
        return TeamName(self.status.team)

    @property
    def version(self) -> int:
        """The object's resourceVersion; those of one kind compare as integers."""
        return int(self.metadata.resource_version)

    @property
    def record(self) -> LedgerRecord:
        """The exact part as core values. Raises ValueError if it is malformed."""
        return RecordReader().read(self)


def reclaiming(found: TeamLedger) -> dict[Uid, InFlightCharge]:
    """Return the charges of pods that keep their gate until reclaim has made their room. Raises ValueError."""
    entries = (entry for entry in found.ledger.in_flight if entry.reclaims)
    return {entry.uid: _flight(entry, TeamName(entry.team or found.team)) for entry in entries}


def charges_of(found: object) -> Mapping[Uid, InFlightCharge]:
    """Return the charges that a TeamLedger as JSON lists. Raises ValueError."""
    return msgspec.convert(found, TeamLedger).record.flights


class RecordReader:
    """Translates one team's objects. An entry that is as in the object before is not translated again, either way.

    Each write contains all charges in flight, and is read twice: as its own answer and by the watch.
    """

    __slots__ = ("_flights", "_team")

    def __init__(self) -> None:
        self._team = TeamName("")
        self._flights: dict[Uid, _ReadEntry] = {}

    def read(self, found: TeamLedger) -> LedgerRecord:
        """Return the exact part of an object as core values. Raises ValueError if it is malformed."""
        team, known = found.team, self._flights if found.team == self._team else {}
        now: dict[Uid, _ReadEntry] = {}
        for entry in found.ledger.in_flight:
            before = known.get(entry.uid)
            is_equal = before is not None and before.entry == entry
            now[entry.uid] = (
                before
                if before is not None and is_equal
                else _ReadEntry(entry, _flight(entry, TeamName(entry.team or team)))
            )
        self._team, self._flights = team, now
        ledger, flights = found.ledger, {uid: each.flight for uid, each in now.items()}
        moves = Moves(ledger.epoch or 0, ledger.home or None, ledger.left or {}, ledger.members or {})
        return LedgerRecord(flights, int(ledger.folded), ledger.turn, NO_MOVES if moves == NO_MOVES else moves)

    def entry(self, flight: InFlightCharge, ledger: TeamName) -> Entry:
        """Return the entry of a charge in a ledger: the one that it was read from, if the last object had it."""
        known = self._flights.get(flight.pod.uid)
        return known.entry if known is not None and known.flight is flight else _entry(flight, ledger)


class _ReadEntry(NamedTuple):
    entry: Entry
    flight: InFlightCharge


class _Metadata(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    name: str
    resource_version: str = ""
    managed_fields: tuple[dict[str, str], ...] = msgspec.field(default_factory=lambda: _UNSTORED)


class _Written(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Metadata
    status: Status
    ledger: Ledger
    api_version: str = keys.OWN_API
    kind: str = keys.TEAM_LEDGER


_decoder: Final = msgspec.json.Decoder(TeamLedger)
_encoder: Final = msgspec.json.Encoder()


def decode(body: bytes) -> TeamLedger:
    """Decode a TeamLedger. Raises ValueError if the body is not one."""
    return _decoder.decode(body)


def encode(
    record: LedgerRecord, row: TeamRow | DepartmentRow, *, version: int, reader: RecordReader | None = None
) -> bytes:
    """Return a TeamLedger that replaces the object at this resourceVersion, or a new one if that is 0.

    `reader` is that of the object before.
    """
    moves, entry = record.moves, (reader or RecordReader()).entry
    return _encoder.encode(
        _Written(
            metadata=_Metadata(object_name(row.ledger), str(version) if version else ""),
            status=status_of(row, in_flight=len(record.flights)),
            ledger=Ledger(
                folded=str(record.folded),
                turn=record.turn,
                in_flight=[entry(flight, row.ledger) for flight in record.flights.values()],
                epoch=moves.epoch or UNSET,
                home=moves.home or UNSET,
                left=dict(moves.left) or UNSET,
                members=dict(moves.members) or UNSET,
            ),
        )
    )


def status_of(row: TeamRow | DepartmentRow, *, in_flight: int) -> Status:
    """Return a row for display."""
    return Status(
        team=row.ledger,
        **amounts(row),
        in_flight=in_flight,
        queued=row.queued.pods,
        queued_gpus=format_gpus(row.queued.gpus) if row.queued.pods else "",
        lingering=format_gpus(row.lingering) if row.lingering else "",
    )


def object_name(team: TeamName) -> str:
    """Return the name of a team's object: the team's name, or a DNS name made from it with a hash."""
    if _DNS_NAME.fullmatch(team):
        return team
    slug = re.sub(r"[^a-z0-9]+", "-", team.lower()).strip("-") or "team"
    return f"{slug}-x{sha256(team.encode()).hexdigest()[:10]}"


def _entry(flight: InFlightCharge, ledger: TeamName) -> Entry:
    pod, charge, longest = flight.pod, flight.charge, _MAX_LEFT if flight.is_left else _MAX_CHARACTERS
    gpus, rest = divmod(charge.gpus, 1)
    demand = pod.demand.own or pod.demand if pod.claims else pod.demand
    return Entry(
        uid=pod.uid,
        ns=pod.namespace,
        name=pod.name[:longest],
        gpus=int(gpus),
        tier=charge.tier,
        rest=str(rest) if rest else "",
        requests=_truncated((*demand.devices, *demand.requests)) if not flight.is_left or flight.node else {},
        label=pod.tier_label,
        model=charge.model,
        user=charge.user,
        node=flight.node,
        bound=pod.node,
        owner=f"{pod.owner.kind}/{pod.owner.name}"[:longest] if pod.owner is not None else None,
        labels=_truncated(pod.labels.items()),
        lingers=flight.lingers,
        team="" if charge.team == ledger else charge.team,
        until=flight.until,
        gang=(pod.gang or "") if flight.until else "",
        reclaims=flight.takes_back,
        claims=[_claim_text(each) for each in pod.claims],
        own=format_gpus(demand.gpus) if pod.claims else "",
    )


def _truncated(items: Iterable[tuple[_K, _V]]) -> dict[_K, _V]:
    """Return the first items whose total length is within the limit."""
    found: dict[_K, _V] = {}
    left = _MAX_CHARACTERS
    for key, value in items:
        left -= len(key) + len(str(value))
        if left < 0:
            break
        found[key] = value
    return found


def _rest(text: str) -> Fraction:
    if not _REST.fullmatch(text):
        raise ValueError(f"expected a part of a GPU unit such as 2/3, got {text!r}")
    return Fraction(text)


def _claim_text(ref: ClaimRef) -> str:
    return ref.claim if ref.claim and not ref.group else f"{ref.group}/{ref.entry}/{ref.template}"


def _claim(text: str) -> ClaimRef:
    group, entry, template = text.split("/") if "/" in text else ("", "", "")
    return ClaimRef(template=template, group=group, entry=entry) if template else ClaimRef(claim=text)


def _flight(entry: Entry, team: TeamName) -> InFlightCharge:
    kind, _, owner = (entry.owner or "").partition("/")
    gpus = entry.gpus + _rest(entry.rest) if entry.rest else entry.gpus
    pod = Resident(
        uid=entry.uid,
        namespace=entry.ns,
        name=entry.name,
        demand=Demand(parse_amount(entry.own) if entry.claims else gpus, (), tuple(sorted(entry.requests.items()))),
        claims=tuple(map(_claim, entry.claims)),
        node=entry.bound,
        owner=Owner(kind, owner) if entry.owner else None,
        team_label=team if entry.label is not None else None,
        tier_label=entry.label,
        user=entry.user,
        is_terminating=bool(entry.lingers) and not entry.until,
        packed=pack(entry.labels) if entry.labels else NO_LABELS,
        gang=GangId(entry.gang) if entry.gang else None,
    )
    charge = Charge(team, entry.tier, gpus, entry.model, entry.user)
    return InFlightCharge(pod, charge, entry.node, entry.lingers, entry.until, entry.reclaims)


# The CustomResourceDefinition of TeamLedger: the one source for the server, `fairgate manifests` and the chart.


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
"""For display, in GPUs. The name of the team or department comes first, since that of the object may be escaped."""


def team_ledger_crd() -> _Json:
    """Return the definition.

    It has no status subresource: one write updates both the charges and the status.
    """
    columns = (
        column("Share of", ".status.team"),
        *(column(name, f".status.{field}") for name, field in _COLUMNS),
        column("Queued", ".status.queued", kind="integer"),
        column("Queued GPUs", ".status.queuedGpus", priority=1),
        column("Lingering", ".status.lingering", priority=1),
        column("In flight", ".status.inFlight", kind="integer", priority=1),
        column("Folded", ".ledger.folded", priority=1),
        column("Age", ".metadata.creationTimestamp", kind="date"),
    )
    return definition(keys.TEAM_LEDGER, keys.TEAM_LEDGERS, _schema(), columns=columns)


def _schema() -> _Json:
    """Return the schema; both parts are atomic: a write has all of one."""
    parts: dict[str, type[msgspec.Struct]] = {"status": Status, "ledger": Ledger}
    return {
        "type": "object",
        "description": "The GPUs that a team, or a department's teams, have charged. Do not edit or delete it.",
        "required": ["status"],
        "properties": {name: {**schema_of(part), "x-kubernetes-map-type": "atomic"} for name, part in parts.items()},
    }
