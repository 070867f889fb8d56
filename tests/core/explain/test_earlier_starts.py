"""How long the last pods of a team and size waited in line."""

from webhook.core.explain import line_rows
from webhook.core.explain.line_rows import LAST, EarlierStarts, EarlierWaits, TeamWaits

ONE = 1000


def test_the_last_starts_of_the_team_and_size_count_alone():
    waits = EarlierWaits([TeamWaits("a", ONE, tuple(60 * n for n in range(1, 30)))])
    waits.note("b", ONE, 9999)
    waits.note("a", 2 * ONE, 8888)
    assert waits.of("a", ONE) == EarlierStarts(LAST, 60 * 10, 60 * 29)
    assert waits.of("b", ONE) == EarlierStarts(1, 9999, 9999)
    assert waits.of("b", 2 * ONE) is None
    assert EarlierWaits(waits).of("a", ONE) == waits.of("a", ONE), "what is published says the same"


def test_many_sizes_of_one_team_displace_its_own_oldest(monkeypatch):
    monkeypatch.setattr(line_rows, "MAX_SIZES", 10)
    waits = EarlierWaits()
    waits.note("honest", ONE, 60)
    for size in range(1, 30):
        waits.note("flood", size, size)
        waits.note("flood", 1, 1)
    assert len(list(waits)) == 10
    assert waits.of("honest", ONE) == EarlierStarts(1, 60, 60)
    assert [waits.of("flood", size) is not None for size in (1, 2, 29)] == [True, False, True]
