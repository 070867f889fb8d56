"""Other products that queue or place pods, known by their API groups or by the names of their webhooks."""

from collections.abc import Collection
from typing import Final

_SIGNS: Final = {
    "kueue.x-k8s.io": "Kueue",
    "scheduling.volcano.sh": "Volcano",
    "scheduling.run.ai": "KAI-Scheduler",
    "kai.scheduler": "KAI-Scheduler",
    # webhooks: these have no API group, and their charts let admins rename the configurations
    "vgpu.hami.io": "HAMi",
    "admission-webhook.yunikorn.mutate-pods": "YuniKorn",
}

PRODUCTS: Final = tuple(dict.fromkeys(_SIGNS.values()))


def products_of(names: Collection[str]) -> tuple[str, ...]:
    """Return the products that API groups and webhooks of these names belong to."""
    return tuple(dict.fromkeys(product for sign, product in _SIGNS.items() if sign in names))


def section_of(product: str) -> str:
    """Return where the docs say how to use a product together with Fairgate."""
    return f"docs/coexistence.md#{product.lower()}"
