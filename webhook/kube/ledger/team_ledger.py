"""TeamLedger, the object that holds one team's page: its name, its fields, and the way there and back.

`status` is for people and never read; `ledger` is exact. Keys of an entry are short, since every write carries all of
them. The entries are one atomic list, and managedFields is sent as the empty marker that keeps it from being stored.
"""

import re
from collections.abc import Iterable
from fractions import Fraction
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from webhook.core.explain.team_summary import Summary
from webhook.core.model.amount import format_gpus, format_limit
from webhook.core.model.decision import Charge
from webhook.core.model.demand import Demand
from webhook.core.model.labels import pack
from webhook.core.model.names import GpuModel, Namespace, NodeName, ResourceName, TeamName, Uid, User
from webhook.core.model.pod import NO_LABELS, Owner, Resident
from webhook.core.model.tier import Tier
from webhook.core.quota.in_flight import InFlightCharge, LedgerRecord
from webhook.kube.objects import keys, objects

_K = TypeVar("_K", bound=str)
_V = TypeVar("_V", int, str)

_DNS_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_REST: Final = re.compile("[1-9][0-9]{0,99}/[1-9][0-9]{0,99}")
_UNSTORED: Final[tuple[dict[str, str], ...]] = ({},)
"""managedFields of one empty entry: the API server then drops them, half a kilobyte a write."""

MAX_LEDGER_BYTES: Final = 1_000_000
"""The largest object that is written: etcd takes 1.5 MiB. Some thousand charges in flight; folded within a second."""

_MOST_CHARACTERS: Final = 1_000
"""Of an entry's labels, of its requests, devices first, and of its owner: whoever makes a pod chooses them, and the
team has one object for all. None of them is needed for a sum."""


class Entry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One charge in flight. `gpus` in whole GPU units, `rest` the part of a unit beside them ("2/3").

    `requests` are as the core counts them, `label` the pod's tier label; `labels` are those by which its like are to be
    spread: it counts before it is seen. `lingers` are the seconds for which its node may still run it, where it was
    deleted by force.
    """

    uid: Uid
    ns: Namespace
    name: str
    gpus: int
    tier: Tier
    rest: str = ""
    requests: dict[ResourceName, int] = {}
    label: str | None = None
    model: GpuModel | None = None
    user: User | None = None
    node: NodeName | None = None
    bound: NodeName | None = None
    owner: str | None = None
    labels: dict[str, str] = {}
    lingers: int = 0


class Ledger(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The exact part. `folded` is a resourceVersion of pods, a string as Kubernetes writes them."""

    folded: str = "0"
    turn: int = 0
    in_flight: list[Entry] = []


class Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The part for people, in GPUs; `in_flight` counts entries."""

    team: str
    guaranteed: str = ""
    limit: str = ""
    used: str = ""
    reserved: str = ""
    borrowed: str = ""
    preemptible: str = ""
    waiting: str = ""
    in_flight: int = 0


class TeamLedger(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A TeamLedger as the API server gives it."""

    metadata: objects.ObjectMeta
    status: Status
    ledger: Ledger = Ledger()

    @property
    def team(self) -> TeamName:
        """Name the team."""
        return TeamName(self.status.team)

    @property
    def version(self) -> int:
        """Tell the object's own version; those of one kind compare as integers."""
        return int(self.metadata.resource_version)

    @property
    def page(self) -> LedgerRecord:
        """Translate the exact part; raises ValueError where it makes no sense."""
        flights = {entry.uid: _flight(entry, self.team) for entry in self.ledger.in_flight}
        return LedgerRecord(flights, int(self.ledger.folded), self.ledger.turn)


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
    """Read one object as the API server answers it; raises ValueError where it is none."""
    return _decoder.decode(body)


def encode(page: LedgerRecord, summary: Summary, *, version: int) -> bytes:
    """Write a page over the object's version, or as a new object where that is 0."""
    return _encoder.encode(
        _Written(
            metadata=_Metadata(object_name(summary.team), str(version) if version else ""),
            status=status_of(summary, in_flight=len(page.flights)),
            ledger=Ledger(str(page.folded), page.turn, [_entry(flight) for flight in page.flights.values()]),
        )
    )


def status_of(summary: Summary, *, in_flight: int) -> Status:
    """Write a summary for people."""
    return Status(
        team=summary.team,
        guaranteed=format_gpus(summary.guaranteed),
        limit=format_limit(summary.limit),
        used=format_gpus(summary.used),
        reserved=format_gpus(summary.reserved),
        borrowed=format_gpus(summary.borrowed),
        preemptible=format_gpus(summary.preemptible),
        waiting=format_gpus(summary.waiting),
        in_flight=in_flight,
    )


def object_name(team: TeamName) -> str:
    """Name a team's object: as the team, or made into a DNS name and told apart by a hash."""
    if _DNS_NAME.fullmatch(team):
        return team
    slug = re.sub(r"[^a-z0-9]+", "-", team.lower()).strip("-") or "team"
    return f"{slug}-x{sha256(team.encode()).hexdigest()[:10]}"


def _entry(flight: InFlightCharge) -> Entry:
    pod, charge = flight.pod, flight.charge
    gpus, rest = divmod(charge.gpus, 1)
    return Entry(
        uid=pod.uid,
        ns=pod.namespace,
        name=pod.name,
        gpus=int(gpus),
        tier=charge.tier,
        rest=str(rest) if rest else "",
        requests=_fitting((*pod.demand.devices, *pod.demand.requests)),
        label=pod.tier_label,
        model=charge.model,
        user=charge.user,
        node=flight.node,
        bound=pod.node,
        owner=f"{pod.owner.kind}/{pod.owner.name}"[:_MOST_CHARACTERS] if pod.owner is not None else None,
        labels=_fitting(pod.labels.items()),
        lingers=flight.lingers,
    )


def _fitting(items: Iterable[tuple[_K, _V]]) -> dict[_K, _V]:
    """Take the first of these, as many as are not too long together."""
    found: dict[_K, _V] = {}
    left = _MOST_CHARACTERS
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


def _flight(entry: Entry, team: TeamName) -> InFlightCharge:
    kind, _, owner = (entry.owner or "").partition("/")
    gpus = entry.gpus + _rest(entry.rest) if entry.rest else entry.gpus
    pod = Resident(
        uid=entry.uid,
        namespace=entry.ns,
        name=entry.name,
        demand=Demand(gpus, (), tuple(sorted(entry.requests.items()))),
        node=entry.bound,
        owner=Owner(kind, owner) if entry.owner else None,
        team_label=team if entry.label is not None else None,
        tier_label=entry.label,
        user=entry.user,
        packed=pack(entry.labels) if entry.labels else NO_LABELS,
    )
    return InFlightCharge(pod, Charge(team, entry.tier, gpus, entry.model, entry.user), entry.node, entry.lingers)
