"""ResourceQuota as the API has it, and the part of it that is compared with new pods."""

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
    """A quota of a namespace."""

    metadata: objects.ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _List(msgspec.Struct, frozen=True):
    items: list[ResourceQuota] | None = None


_list_decoder: Final = msgspec.json.Decoder(_List)


def to_quota(found: ResourceQuota) -> Quota | None:
    """Read a quota; None for one that is only for some pods (scopes), or that nobody summed up yet.

    kube-apiserver compares with `status.hard` and `status.used`, too. Raises ValueError for amounts that are none.
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
    """Decode a list of quotas. Raises ValueError where it is none."""
    found = _list_decoder.decode(body).items or ()
    return [quota for each in found if (quota := to_quota(each)) is not None]
