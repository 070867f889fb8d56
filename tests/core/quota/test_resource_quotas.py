"""Which ResourceQuota has no room for one more pod."""

from fractions import Fraction

import pytest

from tests.core.support import make
from webhook.core.model.amounts import Namespace
from webhook.core.quota.charges import Quota, QuotaIndex, exceeded

GPU = "requests.nvidia.com/gpu"


def quota(name="q", *, used=0, **hard):
    given = {key.replace("_", "."): Fraction(value) for key, value in hard.items()}
    return Quota(name, given, dict.fromkeys(given, Fraction(used)))


def of_gpus(hard, used):
    return Quota("gpus", {GPU: Fraction(hard)}, {GPU: Fraction(used)})


@pytest.mark.parametrize(
    ("quotas", "want"),
    [
        pytest.param([], None, id="none"),
        pytest.param([of_gpus(10, 8)], None, id="the last two"),
        pytest.param(
            [of_gpus(10, 9)],
            f"exceeded quota: gpus, requested: {GPU}=2, used: {GPU}=9, limited: {GPU}=10",
            id="one left",
        ),
        pytest.param(
            [quota(pods=3, used=3)], "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3", id="pods"
        ),
        pytest.param([Quota("q", {"limits.cpu": Fraction(1)}, {"limits.cpu": Fraction(1)})], None, id="limits"),
        pytest.param([Quota("q", {GPU: Fraction(1)}, {})], None, id="not summed yet"),
        pytest.param(
            [Quota("q", {"requests.amd.com/gpu": Fraction(0)}, {"requests.amd.com/gpu": Fraction(0)})],
            None,
            id="other GPUs",
        ),
        pytest.param(
            [of_gpus(2, 1), Quota("a", {"count/pods": Fraction(0)}, {"count/pods": Fraction(0)})],
            "exceeded quota: a, requested: count/pods=1, used: count/pods=0, limited: count/pods=0",
            id="the first by name of two",
        ),
    ],
)
def test_a_quota_without_room_is_reported_in_the_api_servers_wording(quotas, want):
    found = exceeded(make.demand(2), quotas)
    assert (None if found is None else found.text) == want


def test_cpu_is_compared_to_the_thousandth():
    demand = make.demand(1, cpu=1500)
    assert exceeded(demand, [quota(cpu=2, used=Fraction(1, 2))]) is None
    found = exceeded(demand, [quota(requests_cpu=2, used=Fraction(501, 1000))])
    assert found.text.endswith("requested: requests.cpu=1500m, used: requests.cpu=501m, limited: requests.cpu=2")


def test_the_index_keeps_each_namespaces_quotas():
    book, here = QuotaIndex(), Namespace("team-a")
    book.set(here, quota("one"))
    book.set(here, quota("two"))
    book.remove(here, "one")
    book.remove(Namespace("other"), "one")
    assert [each.name for each in book.of(here)] == ["two"]
    book.remove(here, "two")
    assert list(book.of(here)) == []
