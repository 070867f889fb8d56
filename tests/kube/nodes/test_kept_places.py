"""Places in the annotation of a held node, as they are written and read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.support.make import demand
from webhook.core.model.amounts import TeamName, Uid
from webhook.core.model.node import KeptPlace
from webhook.kube.nodes.nodes import kept_places, to_places, to_written
from webhook.kube.objects import keys
from webhook.kube.objects.objects import ObjectMeta

PLACE = KeptPlace("Job team-a/j", "team-a/j-0", TeamName("team-a"), demand(2).requests, Uid("u1"))


def read(text):
    return kept_places(ObjectMeta(name="n0", annotations={keys.HOLD: text}))


def test_a_node_without_a_hold_keeps_none():
    assert kept_places(ObjectMeta(name="n0")) == ()
    assert read('{"id": "h1", "until": "", "for": []}') == ()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"places": 1}', '{"places": [{}]}', '{"places": [{"key": 5}]}'])
def test_what_has_another_format_keeps_none(text):
    assert read(text) == ()


def test_places_are_read_beside_the_rest_of_the_hold():
    written = {"key": "u9", "name": "b/w", "team": "b", "requests": {"nvidia.com/gpu": 8}}
    [found] = read(json.dumps({"id": "h1", "until": "x", "for": [], "evict": [], "places": [written]}))
    assert (found.key, found.requests, found.replaces) == ("u9", (("nvidia.com/gpu", 8),), "")


@given(st.text(), st.text(), st.integers(0, 9))
def test_a_place_is_read_back_as_it_was_written(key, name, count):
    place = PLACE._replace(key=key, name=name, requests=demand(count).requests)
    assert to_places(to_written((place, PLACE))) == (place, PLACE)
