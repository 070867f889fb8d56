"""Where a team stands: which guarantee an entry would use, and who goes first."""

from fractions import Fraction

import pytest

from tests.core.support.queue_sim import entry
from webhook.core.line.order import NO_GUARANTEE, DepartmentStanding, ModelShare, Standing, rank
from webhook.core.model.constraints import Tier


def lot(gpus=1, **more):
    return entry("x", gpus=gpus, **more).lot


@pytest.mark.parametrize(
    ("standing", "asked", "want"),
    [
        (Standing("a", guaranteed=4, used=3), lot(1), 0),
        (Standing("a", guaranteed=4, used=3), lot(2), NO_GUARANTEE),
        (Standing("a", guaranteed=4), lot(1, requested_tier=Tier.PREEMPTIBLE), NO_GUARANTEE),
        (Standing("a", guaranteed=4, models={"H100": ModelShare(1, 1)}), lot(1, model="H100"), NO_GUARANTEE),
        (Standing("a", guaranteed=4, models={"H100": ModelShare(1, 0)}), lot(1, model="H100"), 0),
        (Standing("a", guaranteed=4, models={"H100": ModelShare(1, 1)}), lot(1, model="A100"), 0),
        (Standing("a", departments=(DepartmentStanding(4, 3), DepartmentStanding(8, 3))), lot(1), 1),
        (Standing("a", departments=(DepartmentStanding(4, 3), DepartmentStanding(8, 3))), lot(2), 2),
        (Standing("a", departments=(DepartmentStanding(4, 3), DepartmentStanding(8, 7))), lot(2), NO_GUARANTEE),
    ],
    ids=[
        "its last guaranteed GPU",
        "more than its share has left",
        "by choice it borrows",
        "the share of its model is used up",
        "the share of its model has room",
        "another model",
        "the idle share of its department",
        "that of the department above",
        "of none",
    ],
)
def test_an_entry_uses_the_nearest_guarantee_that_has_room(standing, asked, want):
    assert standing.rank_class(asked) == want
    is_by_choice = asked.requested_tier is Tier.PREEMPTIBLE
    assert standing.has_guarantee_for(asked.gpus) or is_by_choice or want == NO_GUARANTEE


def first(*standings, gpus=1):
    """Return the team that goes first with an entry of this size."""
    return min(standings, key=lambda each: rank(each, each.rank_class(lot(gpus)))).team


def test_inside_the_share_goes_before_borrowing():
    assert first(Standing("a", borrowed=0), Standing("b", guaranteed=10, used=9, borrowed=50)) == "b"


def test_the_smallest_used_part_of_the_share_goes_first():
    assert first(Standing("a", guaranteed=10, used=5), Standing("b", guaranteed=100, used=40)) == "b"


def test_who_borrows_least_for_its_weight_goes_first():
    assert first(Standing("a", borrowed=3, weight=1), Standing("b", borrowed=5, weight=2)) == "b"
    third = Fraction(1, 3)
    assert first(Standing("a", borrowed=1, weight=third), Standing("b", borrowed=2, weight=1)) == "b"


def test_past_borrowing_counts_like_borrowing():
    assert first(Standing("a", borrowed=1, past=4), Standing("b", borrowed=3)) == "b"


def test_departments_are_compared_before_their_teams():
    busy, idle = DepartmentStanding(borrowed=10), DepartmentStanding(borrowed=8, weight=2)
    assert first(Standing("a", departments=(busy,)), Standing("b", borrowed=8, departments=(idle,))) == "b"
    assert first(Standing("a", borrowed=2, departments=(busy,)), Standing("b", borrowed=1, departments=(busy,))) == "b"


def test_an_idle_guarantee_goes_to_its_department_before_the_others():
    inside = DepartmentStanding(guaranteed=10, used=4, borrowed=0)
    assert first(Standing("a"), Standing("b", borrowed=6, departments=(inside,))) == "b"
