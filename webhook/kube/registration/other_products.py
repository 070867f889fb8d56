"""Other products that queue or place pods, known by their API groups and by the names of their webhooks."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final


class Product(StrEnum):
    """A product with a section of its own in docs/coexistence.md."""

    KUEUE = "Kueue"
    VOLCANO = "Volcano"
    KAI = "KAI-Scheduler"
    HAMI = "HAMi"
    YUNIKORN = "YuniKorn"

    @property
    def section(self) -> str:
        """Where the docs say how to use it together with Fairgate."""
        return f"docs/coexistence.md#{self.value.lower()}"


_BY_GROUP: Final[Mapping[str, Product]] = {
    "kueue.x-k8s.io": Product.KUEUE,
    "scheduling.volcano.sh": Product.VOLCANO,
    "scheduling.run.ai": Product.KAI,
    "kai.scheduler": Product.KAI,
}
_BY_WEBHOOK: Final[Mapping[str, Product]] = {
    "vgpu.hami.io": Product.HAMI,
    "admission-webhook.yunikorn.mutate-pods": Product.YUNIKORN,
}
"""These define no API group of their own. Their charts let admins rename the configurations, not the webhooks."""


def products_of(groups: Collection[str], webhooks: Collection[str]) -> list[Product]:
    """Return the products that these API groups, and webhooks with these names, belong to."""
    found = {
        *(product for group, product in _BY_GROUP.items() if group in groups),
        *(product for webhook, product in _BY_WEBHOOK.items() if webhook in webhooks),
    }
    return [product for product in Product if product in found]
