"""Reads which other products queue or place pods in a cluster: from what any user may read, and its webhooks."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError
from webhook.cluster.reads.listing import list_objects
from webhook.kube.objects import keys
from webhook.kube.registration.other_products import products_of, section_of
from webhook.kube.registration.registration_sync import PLURALS
from webhook.kube.world_file.world_objects import WorldKind

_KIND: Final = "MutatingWebhookConfiguration"
_WEBHOOKS: Final = WorldKind(_KIND, keys.REGISTRATION_API, f"/apis/{keys.REGISTRATION_API}/{PLURALS[_KIND]}")

T = TypeVar("T")


class _Group(msgspec.Struct):
    name: str


class _Groups(msgspec.Struct):
    groups: list[_Group] = []


@dataclass(frozen=True, slots=True)
class ProductsFound:
    """The products that were found, and the rights without which some would not be."""

    products: tuple[str, ...] = ()
    missing_rights: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What was found, with the sections to read, and why there may be more."""
        said = "no other queue or scheduler found"
        if self.products:
            verb = "is" if len(self.products) == 1 else "are"
            sections = ", ".join(map(section_of, self.products))
            said = f"{' and '.join(self.products)} {verb} installed: {sections}"
        if self.missing_rights:
            said += f"; there may be more: you lack the right to {' and '.join(self.missing_rights)}"
        return said


async def read_other_products(connection: ApiConnection) -> ProductsFound:
    """Read which products there are. Raises ClusterError if the API server cannot be reached."""
    missing: list[str] = []
    discovery = await _permitted(connection.send("GET", "/apis", action="get apis"), b"{}", "get apis", missing)
    webhooks = await _permitted(list_objects(connection, _WEBHOOKS), [], f"list {PLURALS[_KIND]}", missing)
    names = {group.name for group in msgspec.json.decode(discovery, type=_Groups).groups}
    names.update(webhook["name"] for each in webhooks for webhook in each.get("webhooks") or ())
    return ProductsFound(products_of(names), tuple(missing))


async def _permitted(reading: Awaitable[T], nothing: T, right: str, missing: list[str]) -> T:
    """Return what was read; without the right to, `nothing`, and the right is missing."""
    try:
        return await reading
    except ApiError as error:
        if not error.is_forbidden:
            raise
        missing.append(right)
        return nothing
