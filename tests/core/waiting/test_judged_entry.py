"""The judge of one pass: pods alone, gangs together."""

from tests.core.support.make import world
from tests.core.support.waiting import waiting
from webhook.core.line.entries import Fits, Never, Way, entry_of
from webhook.core.line.judged_gang import EntryJudge
from webhook.core.line.line import queued_pod


def test_the_judge_keeps_what_it_found_and_knows_no_pod_that_left():
    place = world()
    place.set_waiting(waiting("a"))
    judge, entry = EntryJudge(place), entry_of([queued_pod(waiting("a"), place)])
    assert judge(entry, way=Way.IN_TURN, kept=frozenset()) == Fits()
    assert set(judge.judged) == {"uid-a"}
    place.remove_pod("uid-a")
    assert judge(entry, way=Way.IN_TURN, kept=frozenset()) == Never()
