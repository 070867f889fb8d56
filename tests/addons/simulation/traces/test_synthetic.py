"""Random loads: what they ask for on average, and that a seed makes them the same again."""

from statistics import mean

import pytest

from webhook.addons.simulation.traces.formats import Row, TraceError
from webhook.addons.simulation.traces.load import DEFAULT_MIX, Load, Size, drawn, parse_mix

DAY = 86_400


def load(part=0.9, *, gpus=64, days=30, run_seconds=3600, mix=DEFAULT_MIX, rows=()):
    return Load(part, gpus, days * DAY, run_seconds, parse_mix(mix), rows)


def test_a_load_asks_for_its_part_of_the_gpus():
    found = drawn(load(), seed=1)
    asked = sum(row.gpus * row.pods * row.seconds for row in found)
    assert asked / (64 * 30 * DAY) == pytest.approx(0.9, rel=0.05)
    assert mean(row.seconds for row in found) == pytest.approx(3600, rel=0.05)
    assert {row.gpus for row in found} == {1, 2, 4, 8}


def test_a_seed_gives_the_same_load_again():
    assert drawn(load(days=1), seed=7) == drawn(load(days=1), seed=7)
    assert drawn(load(days=1), seed=7) != drawn(load(days=1), seed=8)


def test_sizes_and_run_times_of_a_trace_are_drawn_together():
    rows = (Row(2, "a", 1, 0, 60), Row(3, "b", 8, 0, 600), Row(4, "cpu", 0, 0, 9))
    found = drawn(load(rows=rows, days=3), seed=1)
    assert {(row.gpus, row.seconds) for row in found} == {(1, 60), (8, 600)}
    asked = sum(row.gpus * row.seconds for row in found)
    assert asked / (64 * 3 * DAY) == pytest.approx(0.9, rel=0.05)


def test_a_trace_without_times_gets_random_ones():
    found = drawn(load(rows=(Row(2, "a", 2, 0, 0),), days=3), seed=1)
    assert mean(row.seconds for row in found) == pytest.approx(3600, rel=0.1)


def test_sizes_of_gangs():
    assert parse_mix("1:3, 4x8:1") == (Size(1, 1, 3.0), Size(8, 4, 1.0))


@pytest.mark.parametrize("text", ["", "x", "0:1", "1:0", "1:-1", "1:nan", "1:inf", "-1x2:1", f"{10**18}:1", "1:1:1"])
def test_what_is_no_mix(text):
    with pytest.raises(ValueError, match=r"expected GPUS:WEIGHT|above 0"):
        parse_mix(text)


def test_a_load_without_end():
    with pytest.raises(TraceError, match="at most 1,000,000 are simulated"):
        drawn(load(10, gpus=10**6, days=366, run_seconds=1), seed=1)


def test_a_load_of_no_gpus():
    with pytest.raises(TraceError, match="asks for no GPUs"):
        drawn(load(gpus=0), seed=1)
