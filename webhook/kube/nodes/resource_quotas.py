"""Decoding of ResourceQuotas to core Quotas, which are compared with new pods."""

from typing import Any, Final

import msgspec

from webhook.core.quota.resource_quotas import Quota
from webhook.kube.objects import objects
from webhook.kube.objects.quantity import Quantity, exact

PATH: Final = "/api/v1/resourcequotas"


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    scopes: list[str] | None = None
    scope_selector: dict[str, Any] | None = None


class _Status(msgspec.Struct, frozen=True):
    hard: dict[str, Quantity] | None = None
    used: dict[str, Quantity] | None = None


class ResourceQuota(msgspec.Struct, frozen=True):
    """A ResourceQuota."""

    metadata: objects.ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _List(msgspec.Struct, frozen=True):
    items: list[ResourceQuota] | None = None


_list_decoder: Final = msgspec.json.Decoder(_List)


def to_quota(found: ResourceQuota) -> Quota | None:
    """Translate a quota; None if it applies to some pods only (scopes), or has no status yet.

    kube-apiserver also compares with `status.hard` and `status.used`. Raises ValueError for malformed amounts.
    """
    if found.spec.scopes or found.spec.scope_selector:
        return None
    hard, used = found.status.hard or {}, found.status.used or {}
    if not hard:
        return None
    return Quota(
        found.metadata.name,
        {name: exact(amount) for name, amount in hard.items()},
        {name: exact(amount) for name, amount in used.items()},
    )


def decode_quotas(body: bytes) -> list[Quota]:
    """Decode a list of quotas. Raises ValueError if the body is not one."""
    found = _list_decoder.decode(body).items or ()
    return [quota for each in found if (quota := to_quota(each)) is not None]
