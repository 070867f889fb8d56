"""Reads which other products queue or place pods in a cluster: from what any user may read, and its webhooks."""

from dataclasses import dataclass
from typing import Final

import msgspec

from webhook.cluster.api.client import ApiConnection
from webhook.cluster.api.errors import ApiError
from webhook.cluster.reads.listing import list_objects
from webhook.kube.objects import keys
from webhook.kube.registration.other_products import ONLY_BY_WEBHOOK, Product, products_of
from webhook.kube.registration.registration_sync import PLURALS
from webhook.kube.world_file.world_objects import WorldKind

_KIND: Final = "MutatingWebhookConfiguration"
_WEBHOOKS: Final = WorldKind(_KIND, keys.REGISTRATION_API, f"/apis/{keys.REGISTRATION_API}/{PLURALS[_KIND]}")


class _Group(msgspec.Struct):
    name: str


class _Groups(msgspec.Struct):
    groups: list[_Group] = []


@dataclass(frozen=True, slots=True)
class ProductsFound:
    """The products that were found, and the right without which some would not be; empty if nothing is missing."""

    products: tuple[Product, ...] = ()
    missing_right: str = ""

    @property
    def text(self) -> str:
        """What was found, with the page to read, and what could not be looked for."""
        said = "no other queue or scheduler found"
        if self.products:
            verb = "is" if len(self.products) == 1 else "are"
            sections = ", ".join(product.section for product in self.products)
            said = f"{' and '.join(self.products)} {verb} installed: {sections}"
        if self.missing_right:
            said += f"; {' and '.join(ONLY_BY_WEBHOOK)} only show with the right to {self.missing_right}"
        return said


async def read_other_products(connection: ApiConnection) -> ProductsFound:
    """Read which products there are. Raises ClusterError if the API server cannot be reached."""
    answer = await connection.send("GET", "/apis", action="get apis")
    groups = {group.name for group in msgspec.json.decode(answer, type=_Groups).groups}
    try:
        configurations = await list_objects(connection, _WEBHOOKS)
    except ApiError as error:
        if not error.is_forbidden:
            raise
        return ProductsFound(tuple(products_of(groups, ())), f"list {PLURALS[_KIND]}")
    names = {webhook["name"] for each in configurations for webhook in each.get("webhooks") or ()}
    return ProductsFound(tuple(products_of(groups, names)))
