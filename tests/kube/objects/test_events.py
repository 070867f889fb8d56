"""Events: what makes two of them one object, and the bounds that the API server sets."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from webhook.kube.objects.events import (
    MAX_MESSAGE_BYTES,
    Event,
    EventReason,
    ObjectRef,
    count_of,
    new_event,
    repeat_patch,
)

POD = ObjectRef("Pod", "team-a", "train-0", "u1")
EVENT = Event(POD, EventReason.PROMOTED, "2 GPUs became guaranteed")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def written(event, count=1):
    return new_event(event, count=count, first=NOON, last=NOON, component="fairgate", instance="fairgate-0")


@pytest.mark.parametrize(
    "other",
    [
        replace(EVENT, message="3 GPUs became guaranteed"),
        replace(EVENT, about=msgspec.structs.replace(POD, uid="u2")),
        replace(EVENT, reason=EventReason.DEMOTED),
    ],
)
def test_events_that_differ_are_different_objects(other):
    assert other.name != EVENT.name
    assert other.identity != EVENT.identity


def test_events_of_a_series_are_one_object_whatever_their_message():
    one, other = (replace(EVENT, series="room", message=text) for text in ("2 of 8 GPUs", "3 of 8 GPUs"))
    assert (one.name, one.identity) == (other.name, other.identity)


def test_events_about_cluster_scoped_objects_are_in_the_default_namespace():
    assert replace(EVENT, about=ObjectRef("Node", "", "n0")).namespace == "default"
    assert EVENT.namespace == "team-a"


@given(st.text("abcdefghij.-0123456789", min_size=1, max_size=253))
@examples()
def test_names_are_valid_however_long_that_of_the_object_is(name):
    made = replace(EVENT, about=msgspec.structs.replace(POD, name=name)).name
    before, _, digits = made.rpartition(".")
    assert len(made) <= 253
    assert len(digits) == 16
    assert not before.endswith((".", "-"))


@given(st.sampled_from("aé€😀"), st.integers(-2, 2))
@examples()
def test_messages_stay_within_the_api_servers_limit(letter, beyond):
    size = len(letter.encode())
    text = letter * (MAX_MESSAGE_BYTES // size + beyond)
    event = replace(EVENT, message=text)
    for body in (written(event), repeat_patch(event, count=2, last=NOON)):
        message = json.loads(body)["message"]
        assert MAX_MESSAGE_BYTES - 4 * size <= len(message.encode()) <= MAX_MESSAGE_BYTES
        assert (message == text) is (len(text.encode()) <= MAX_MESSAGE_BYTES)


def test_a_related_object_is_written_with_its_own_kind():
    ref = ObjectRef("Job", "team-a", "train", "u9", "batch/v1")
    body = json.loads(written(replace(EVENT, related=ref)))
    want = {"kind": "Job", "namespace": "team-a", "name": "train", "uid": "u9", "apiVersion": "batch/v1"}
    assert body["related"] == want
    assert "related" not in json.loads(written(EVENT))


def test_the_count_is_read_back_and_is_at_least_one():
    assert count_of(written(EVENT, count=7)) == 7
    assert count_of(b'{"count": 0}') == count_of(b"{}") == 1
    with pytest.raises(ValueError, match="object"):
        count_of(b"[]")
