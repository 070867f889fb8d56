"""How long the last pods of a team and size waited."""

from webhook.core.explain.line_places import Run
from webhook.core.explain.line_rows import LAST, EarlierStarts, EarlierWaits

ONE = 1000


def run(number, *, waited, team="a", gpus=ONE, created=1000):
    return Run(f"u{number}", team, created + waited, gpus=gpus, created=created)


def test_the_last_starts_of_the_team_and_size_count_alone():
    runs = [run(n, waited=60 * n, created=100_000 + n) for n in range(1, 30)]
    others = [run("t", waited=9999, team="b"), run("g", waited=9999, gpus=2 * ONE)]
    assert EarlierWaits([*runs, *others]).of("a", ONE) == EarlierStarts(LAST, 60 * 10, 60 * 29)
    assert EarlierWaits([*others, *runs]).of("b", ONE) == EarlierStarts(1, 9999, 9999)


def test_nothing_is_said_where_no_start_is_known():
    unknown = [Run("u", "a", 1000, gpus=ONE), Run("v", "a", 1000, gpus=ONE, created=2000)]
    assert EarlierWaits(unknown).of("a", ONE) is None, "when they came is not known, or after they started"
    assert EarlierWaits().of("a", ONE) is None
