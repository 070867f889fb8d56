"""What room costs, and how long it was waited for."""

from tests.addons.moves.made import target
from tests.core.support.make import gpus
from tests.core.support.scenes import NOW
from webhook.addons.moves.candidates import WHY_NO_MOVES, Moves, NoMoves, Room


def test_only_pods_that_exist_have_waited():
    place = Moves(target(4, since=NOW - 10), "n0")
    assert Room((place,)).waited(NOW) == gpus(4) * 10
    assert Room((place, place)).waited(NOW) == gpus(8) * 10
    assert Room((Moves(target(4), "n0"),)).waited(NOW) == 0


def test_each_cause_has_words():
    assert WHY_NO_MOVES.keys() == set(NoMoves)
