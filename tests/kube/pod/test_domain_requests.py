"""The domain that a gang asks for, by the annotations of its pods."""

import pytest

from webhook.core.model.constraints import ANYWHERE, DomainRequest
from webhook.kube.objects import keys
from webhook.kube.pod.gangs import domain_problem, domain_request, required_by_key

OWN = keys.TOPOLOGY
RACK = "example.com/rack"
REQUIRED = DomainRequest(RACK, is_required=True)
PREFERRED = DomainRequest(RACK)


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        ({OWN: RACK}, REQUIRED),
        ({OWN: f"required={RACK}"}, REQUIRED),
        ({OWN: f"preferred={RACK}"}, PREFERRED),
        ({OWN: "none"}, ANYWHERE),
        ({keys.KUEUE_REQUIRED_TOPOLOGY: RACK}, REQUIRED),
        ({keys.KUEUE_PREFERRED_TOPOLOGY: RACK}, PREFERRED),
        ({keys.KUEUE_ANY_TOPOLOGY: "true"}, ANYWHERE),
        ({keys.KUEUE_ANY_TOPOLOGY: "false"}, None),
        ({OWN: "zone", keys.KUEUE_REQUIRED_TOPOLOGY: RACK}, DomainRequest("zone", is_required=True)),
        ({}, None),
        ({"other": RACK}, None),
    ],
)
def test_own_annotation_counts_before_those_of_kueue(annotations, want):
    assert domain_request(annotations) == want
    assert domain_problem(annotations, is_in_gang=True) == ""


@pytest.mark.parametrize(
    "value",
    ["", "required", "preferred", "preferred=", "wanted=rack", "a b", "Zone/x y", "-rack", "a/b/c", "required=a=b"],
)
def test_a_malformed_value_is_ignored_and_said_to_be(value):
    assert domain_request({OWN: value}) is None
    text = domain_problem({OWN: value}, is_in_gang=True)
    assert text == f"annotation {OWN} {value!r} is ignored: write KEY, required=KEY, preferred=KEY or none"
    assert len(text) <= 120, "kubectl and others cut longer warnings"


@pytest.mark.parametrize("key", [OWN, keys.KUEUE_REQUIRED_TOPOLOGY, keys.KUEUE_PREFERRED_TOPOLOGY])
@pytest.mark.parametrize("value", ["a" * 250_000, "x/" * 100_000, "required=" + "b." * 100_000, "\x1b[31m" * 9])
def test_a_value_of_any_length_costs_nothing_and_gives_a_short_text(key, value):
    assert domain_request({key: value}) is None
    text = domain_problem({key: value}, is_in_gang=True)
    assert 0 < len(text) < 400
    assert text.isprintable()


def test_the_annotation_of_a_pod_in_no_gang_is_ignored():
    text = domain_problem({OWN: RACK}, is_in_gang=False)
    assert text == f"annotation {OWN} is ignored: the pod has no controller and no mark of a gang"
    assert domain_problem({OWN: "none"}, is_in_gang=False) == ""


def test_the_key_of_a_pod_group_is_one_that_a_label_may_have():
    assert required_by_key(RACK) == REQUIRED
    assert required_by_key("") is None
    assert required_by_key("a" * 300) is None
