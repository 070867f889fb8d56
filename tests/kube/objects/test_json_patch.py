"""JSON Patch operations and JSON Pointers."""

import pytest

from webhook.kube.objects.keys import add, escape, put


@pytest.mark.parametrize(("key", "want"), [("a/b", "a~1b"), ("a~b", "a~0b"), ("~1", "~01"), ("plain", "plain")])
def test_pointers_are_escaped(key, want):
    assert escape(key) == want


@pytest.mark.parametrize(("exists", "want"), [(True, "replace"), (False, "add")])
def test_a_member_is_replaced_only_if_it_is_present(exists, want):
    assert put("/metadata/labels/a", "b", exists=exists) == {"op": want, "path": "/metadata/labels/a", "value": "b"}


def test_an_element_is_added_at_the_end():
    assert add("/spec/tolerations/-", {}) == {"op": "add", "path": "/spec/tolerations/-", "value": {}}
