"""Why a pod waits, as annotations: a text for people, facts for programs."""

import json

import pytest

from webhook.core.model.reasons import Code, Reason, Statement, waits_for
from webhook.kube.objects import keys
from webhook.kube.pod.waiting import MAX_FACTS, Waits, read_waits, waiting_annotations, waits_of

CAUSE = Statement("team {team} holds {taken:gpus}", {"team": "vision", "taken": 840_000})


def test_the_text_and_the_facts_say_the_same():
    written = waiting_annotations(waits_of(waits_for(Code.WAITS_FOR_LIMIT, CAUSE, place=4)))
    assert written == {
        keys.WAITING: "waits: team vision holds 1; 4th in the queue",
        keys.WAITING_FACTS: '{"code":"WaitsForLimit","cause":{"words":"team {team} holds {taken:gpus}",'
        '"facts":{"team":"vision","taken":"1"}},"place":4}',
    }
    assert read_waits(written) == Waits(Reason(Code.WAITS_FOR_LIMIT, *CAUSE), 4)


def test_a_place_of_0_is_left_out():
    written = waiting_annotations(Waits(Reason(Code.WAITS_FOR_LIMIT, *CAUSE)))
    assert written[keys.WAITING] == "waits: team vision holds 1"
    assert "place" not in json.loads(written[keys.WAITING_FACTS])


def test_facts_without_end_are_not_written():
    long = Statement("{text}", {"text": "x" * MAX_FACTS})
    written = waiting_annotations(Waits(Reason(Code.WAITS_IN_LINE, *long)))
    assert written[keys.WAITING_FACTS] is None
    assert len(written[keys.WAITING]) <= 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "waits: x",
        "{}",
        "[]",
        '{"code": "Unheard", "cause": {"words": "x"}}',
        '{"code": "WaitsForLimit", "cause": {"words": "x"}, "place": -1}',
        '{"code": "WaitsForLimit", "cause": {"words": "{x}"}}',
        '{"code": "WaitsForLimit", "cause": {"words": "\\u001b[2J"}}',
        '{"code": "WaitsForLimit", "cause": {"words": "' + "x" * MAX_FACTS + '"}}',
        "[" * 10_000,
    ],
)
def test_what_its_owner_wrote_there_is_not_taken_for_a_reason(text):
    assert read_waits({keys.WAITING_FACTS: text}) is None
