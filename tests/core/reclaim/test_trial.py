"""One round on the fleet itself: what is tried is undone, and a victim frees its room once."""

from dataclasses import replace

from tests.core.support.make import GPU
from tests.core.support.scenes import scene, victim, waiting
from webhook.core.model.amounts import TeamName
from webhook.core.reclaim.reclaim_plan import Move, NoPlan, NotPlanned
from webhook.core.reclaim.trial import Trial

FULL = [victim("a", 4), victim("c", 4, team="team-c")]


def test_what_is_placed_is_undone():
    there = scene(FULL)
    trial = Trial(there)
    before = trial.savepoint()
    assert isinstance(trial.place(waiting(count=4)), Move)
    assert isinstance(trial.place(waiting("b2", 4)), Move)
    assert trial.place(waiting("b3", 4)) == NotPlanned(waiting("b3", 4), NoPlan.NOT_ENOUGH_VICTIMS)
    trial.undo(before)
    assert isinstance(trial.place(waiting("b3", 4)), Move)
    trial.undo(before)
    assert there.fleet.free("n0", GPU) == 0


def test_no_pod_of_the_teams_outside_is_evicted():
    trial = Trial(scene(FULL))
    for spared, want in (("team-a", "c"), ("team-c", "a")):
        before = trial.savepoint()
        move = trial.place_on(waiting(count=4), -1, outside=frozenset({TeamName(spared)}))
        assert [each.name for each in move.victims] == [want]
        trial.undo(before)
    both = frozenset({TeamName("team-a"), TeamName("team-c")})
    assert trial.place_on(waiting(), -1, outside=both).cause is NoPlan.NOT_ENOUGH_VICTIMS


def test_victims_free_their_room_once():
    there = scene(FULL)
    trial = Trial(there)
    assert not trial.has_room(waiting(count=4), -1)
    trial.evict(FULL[:1])
    trial.evict(FULL[:1])
    assert there.fleet.free("n0", GPU) == 4
    assert trial.has_room(waiting(count=4), -1)
    assert not trial.has_room(waiting(count=4), 0)
    trial.undo(0)
    assert there.fleet.free("n0", GPU) == 0


def test_no_room_is_made_on_a_node_that_rejects_the_teams_pods():
    there = scene(FULL)
    closed = replace(there, closed_to=lambda _: there.fleet.bit("n0"))
    assert isinstance(Trial(there).place(waiting(count=4)), Move)
    trial = Trial(closed)
    assert trial.place(waiting(count=4)) == NotPlanned(waiting(count=4), NoPlan.NO_NODE)
    trial.evict(FULL)
    assert not trial.has_room(waiting(count=4), -1)
    trial.undo(0)
