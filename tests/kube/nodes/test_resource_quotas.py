"""Decoding of ResourceQuotas."""

import json
from fractions import Fraction

import pytest

from webhook.kube.nodes.nodes import decode_quotas

STATUS = {"hard": {"pods": "2", "requests.cpu": "1500m"}, "used": {"pods": "1", "requests.cpu": "1"}}


def read(spec=None, status=STATUS):
    found = {"metadata": {"name": "q", "namespace": "team-a"}, "spec": spec or {}, "status": status}
    return decode_quotas(json.dumps({"items": [found]}).encode())


def test_hard_and_used_are_exact():
    [quota] = read()
    assert quota.hard == {"pods": 2, "requests.cpu": Fraction(3, 2)}
    assert quota.used == {"pods": 1, "requests.cpu": 1}


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        pytest.param({"scopes": ["BestEffort"]}, STATUS, id="scopes"),
        pytest.param({"scopeSelector": {"matchExpressions": []}}, STATUS, id="a scope selector"),
        pytest.param({}, {}, id="no status yet"),
    ],
)
def test_unsupported_quotas_are_left_to_the_api_server(spec, status):
    assert read(spec, status) == []


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"items": [{}]}'])
def test_a_malformed_list_is_an_error(body):
    with pytest.raises(ValueError, match=r"truncated|Expected|Object"):
        decode_quotas(body)
