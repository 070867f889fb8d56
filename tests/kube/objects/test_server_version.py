"""The version of an API server: each provider's form of it, and which are too old."""

import json

import pytest

from webhook.kube.objects.keys import ServerVersion, parse_version, why_too_old


@pytest.mark.parametrize(
    ("info", "want"),
    [
        ({"major": "1", "minor": "30", "gitVersion": "v1.30.14"}, "Kubernetes 1.30 (v1.30.14)"),
        ({"major": "1", "minor": "31+", "gitVersion": "v1.31.4-eks-7f9"}, "Kubernetes 1.31 (v1.31.4-eks-7f9)"),
        ({"major": "2", "minor": "0", "gitVersion": "v2.0.0"}, "Kubernetes 2.0 (v2.0.0)"),
    ],
)
def test_a_version_is_read_and_is_not_too_old(info, want):
    found = parse_version(json.dumps(info).encode())
    assert str(found) == want
    assert why_too_old(found) is None


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"major": 1}', b'{"major": "1"}', b'{"minor": "x"}'])
def test_what_is_no_version_of_kubernetes_is_none(body):
    assert parse_version(body) is None


@pytest.mark.parametrize("version", [(1, 29), (1, 0), (0, 99)])
def test_an_older_one_is_too_old_and_the_reason_says_what_is_needed(version):
    why = why_too_old(ServerVersion(*version, "v0"))
    assert why is not None
    assert "Fairgate needs Kubernetes 1.30 or newer" in why
