"""Pods that are charged and still have the gate go on as they were charged."""

from tests.core.support.line import due, place_for
from tests.core.support.make import flight, gpus, pod
from tests.core.support.waiting import waiting
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.starting.awaited_room import unfinished
from webhook.core.starting.starts import AssumedStarts

NOW = 1_000_000


class TestWhatTheLedgerLists:
    def charged(self, place):
        found = flight(pod(4, uid="uid-a"), Charge("team-a", Tier.GUARANTEED, gpus(4)), "n2")
        place.assume(found)
        return found

    def test_is_released_as_it_was_charged_and_stays_counted(self):
        place = place_for()
        place.set_waiting(waiting("a", 4))
        listed = {}
        starts = AssumedStarts(place, listed=lambda _, uid: listed.get(uid))
        (turn,) = starts.due(now=0, count=1)
        listed["uid-a"] = self.charged(place)
        decision, charge, _ = starts.judge_again(turn)
        assert (decision.node_choice.nodes, charge) == (("n2",), listed["uid-a"])
        starts.drop_assumed(turn)
        assert place.usage("team-a").total == gpus(4)

    def test_has_no_turn_until_it_is_listed_no_longer(self):
        place = place_for()
        place.set_waiting(waiting("a", 4))
        starts = AssumedStarts(place)
        starts.entries.sync()
        self.charged(place)
        assert due(place, starts=starts) == [], "charged after the entry was made"
        starts.entries.put_back("uid-a")
        assert due(place, starts=starts) == []
        place.drop_reservation("uid-a")
        assert due(place, starts=starts) == ["a"], "nothing but the ledger said so"

    def test_a_turn_that_was_not_charged_is_dropped_again(self):
        place = place_for()
        place.set_waiting(waiting("a", 4))
        starts = AssumedStarts(place)
        (turn,) = starts.due(now=0, count=1)
        starts.drop_assumed(turn)
        assert place.usage("team-a").total == 0


def test_a_new_leader_goes_on_with_what_is_charged():
    place = place_for()
    place.set_waiting(waiting("a", 2))
    charged = flight(pod(2, uid="uid-a"), Charge("team-a", Tier.GUARANTEED, gpus(2)), "n3")
    gone = flight(pod(2, uid="gone"), Charge("team-a", Tier.GUARANTEED, gpus(2)), "n3")
    ((found, admit),) = unfinished(place, [charged, gone])
    assert (found.uid, admit.node_choice.nodes, admit.charge) == ("uid-a", ("n3",), charged.charge)
