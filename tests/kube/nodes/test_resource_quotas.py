"""ResourceQuotas as the API has them."""

import json
from fractions import Fraction

import pytest

from webhook.kube.nodes.resource_quotas import decode_quotas

STATUS = {"hard": {"pods": "2", "requests.cpu": "1500m"}, "used": {"pods": "1", "requests.cpu": "1"}}


def read(spec=None, status=STATUS):
    found = {"metadata": {"name": "q", "namespace": "team-a"}, "spec": spec or {}, "status": status}
    return decode_quotas(json.dumps({"items": [found]}).encode())


def test_what_is_allowed_and_used_is_exact():
    [quota] = read()
    assert quota.hard == {"pods": 2, "requests.cpu": Fraction(3, 2)}
    assert quota.used == {"pods": 1, "requests.cpu": 1}


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        pytest.param({"scopes": ["BestEffort"]}, STATUS, id="scopes"),
        pytest.param({"scopeSelector": {"matchExpressions": []}}, STATUS, id="a selector of scopes"),
        pytest.param({}, {}, id="not summed up yet"),
    ],
)
def test_what_is_not_known_for_sure_is_left_to_the_api_server(spec, status):
    assert read(spec, status) == []


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"items": [{}]}'])
def test_what_is_no_list_is_said_so(body):
    with pytest.raises(ValueError, match=r"truncated|Expected|Object"):
        decode_quotas(body)
