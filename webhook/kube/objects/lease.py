"""Decoding and encoding of a coordination.k8s.io/v1 Lease. No leader election here."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from webhook.kube.objects import keys


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of a Lease. No holder: it is free. The times are for display: clocks of replicas may differ."""

    holder: str = ""
    duration_seconds: int = 0
    acquired_at: str = ""
    renewed_at: str = ""
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A record and the resourceVersion at which it is stored."""

    record: LeaseRecord
    version: str


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Lease(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    metadata: _Metadata
    spec: _Spec | None = None
    api_version: str = ""
    kind: str = ""


_decoder: Final = msgspec.json.Decoder(_Lease)


def read_lease(body: bytes) -> StoredLease:
    """Decode a Lease; one created by hand may have no spec. Raises ValueError if it is not a Lease."""
    lease = _decoder.decode(body)
    spec = lease.spec or _Spec()
    record = LeaseRecord(
        holder=spec.holder_identity or "",
        duration_seconds=spec.lease_duration_seconds or 0,
        acquired_at=spec.acquire_time or "",
        renewed_at=spec.renew_time or "",
        transitions=spec.lease_transitions or 0,
    )
    return StoredLease(record, lease.metadata.resource_version)


def new_lease(record: LeaseRecord, *, namespace: str, name: str) -> bytes:
    """Return a Lease to be created."""
    metadata = _Metadata(name=name, namespace=namespace)
    return msgspec.json.encode(_Lease(metadata, _spec(record), keys.LEASE_API, "Lease"))


def lease_patch(record: LeaseRecord, *, version: str) -> bytes:
    """Return a merge patch that succeeds only if the Lease still has this version; other fields stay unchanged."""
    return msgspec.json.encode(_Lease(_Metadata(resource_version=version), _spec(record)))


def micro_time(moment: datetime) -> str:
    """Return a UTC time as a Kubernetes MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _spec(record: LeaseRecord) -> _Spec:
    return _Spec(record.holder, record.duration_seconds, record.acquired_at, record.renewed_at, record.transitions)
