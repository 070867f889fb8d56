"""Other queues and schedulers are known by what they register."""

import re

import pytest

from tests.docs import pages
from webhook.kube.registration.static_files import PRODUCTS, products_of, section_of


@pytest.mark.parametrize(
    ("names", "want"),
    [
        ({"apps", "batch", "mutate.fairgate.dev"}, ()),
        ({"kueue.x-k8s.io", "mpod.kb.io"}, ("Kueue",)),
        ({"scheduling.volcano.sh", "batch.volcano.sh"}, ("Volcano",)),
        ({"scheduling.run.ai", "kai.scheduler"}, ("KAI-Scheduler",)),
        ({"apps", "vgpu.hami.io", "admission-webhook.yunikorn.mutate-pods"}, ("HAMi", "YuniKorn")),
    ],
)
def test_a_product_is_known_by_its_groups_or_its_webhooks_once(names, want):
    assert products_of(names) == want


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_page_has_the_section_of_each_product(product):
    page, anchor = section_of(product).split("#")
    heads = re.findall(r"^## (.+)$", (pages.ROOT / page).read_text(), flags=re.MULTILINE)
    assert anchor in {head.lower() for head in heads}
