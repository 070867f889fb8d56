"""JSON Patch operations and JSON Pointers."""

import pytest

from webhook.kube.objects.json_patch import escape


@pytest.mark.parametrize(("key", "want"), [("a/b", "a~1b"), ("a~b", "a~0b"), ("~1", "~01"), ("plain", "plain")])
def test_pointers_are_escaped(key, want):
    assert escape(key) == want
