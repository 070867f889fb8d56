"""Other queues and schedulers are known by what they register."""

import re

import pytest

from tests.docs import pages
from webhook.kube.registration.other_products import Product, products_of


@pytest.mark.parametrize(
    ("groups", "webhooks", "want"),
    [
        ({"apps", "batch"}, {"mutate.fairgate.dev"}, []),
        ({"kueue.x-k8s.io"}, {"mpod.kb.io"}, ["Kueue"]),
        ({"scheduling.volcano.sh", "batch.volcano.sh"}, set(), ["Volcano"]),
        ({"scheduling.run.ai", "kai.scheduler"}, set(), ["KAI-Scheduler"]),
        ({"apps"}, {"vgpu.hami.io", "admission-webhook.yunikorn.mutate-pods"}, ["HAMi", "YuniKorn"]),
    ],
)
def test_a_product_is_known_by_its_groups_or_its_webhooks_once(groups, webhooks, want):
    assert products_of(groups, webhooks) == want


@pytest.mark.parametrize("product", Product)
def test_the_page_has_the_section_of_each_product(product):
    page, anchor = product.section.split("#")
    heads = re.findall(r"^## (.+)$", (pages.ROOT / page).read_text(), flags=re.MULTILINE)
    assert anchor in {head.lower() for head in heads}
