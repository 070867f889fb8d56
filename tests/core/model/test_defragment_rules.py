"""When a window is open, by the clock of its time zone."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.policy_addons import DefragmentRules, Window

NIGHT = Window(2 * 60, 5 * 60)


def at(text):
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp())


@pytest.mark.parametrize(
    ("time", "want"), [("01:59:59", False), ("02:00:00", True), ("04:59:59", True), ("05:00:00", False)]
)
def test_a_window_is_open_from_its_start_to_before_its_end(time, want):
    assert NIGHT.is_open(at(f"2026-11-26T{time}")) is want


@pytest.mark.parametrize(("time", "want"), [("21:59", False), ("22:00", True), ("00:30", True), ("02:00", False)])
def test_a_window_goes_over_midnight(time, want):
    assert Window(22 * 60, 2 * 60).is_open(at(f"2026-11-26T{time}:00")) is want


def test_the_clocks_of_its_time_zone_count_in_summer_and_winter():
    berlin = Window(2 * 60, 5 * 60, "Europe/Berlin")
    assert (berlin.is_open(at("2026-01-10T01:00:00")), berlin.is_open(at("2026-01-10T04:00:00"))) == (True, False)
    assert (berlin.is_open(at("2026-07-10T00:00:00")), berlin.is_open(at("2026-07-10T03:00:00"))) == (True, False)


@given(st.integers(0, 1439), st.integers(1, 1440), st.integers(0, 4_000_000_000))
def test_a_window_is_open_for_its_length_each_day(start, length, now):
    window = Window(start, (start + length) % 1440 or 1440) if length < 1440 else Window(0, 1440)
    day = now - now % 86_400
    minutes = sum(window.is_open(day + 60 * minute) for minute in range(1440))
    assert minutes == length


def test_a_window_in_words():
    assert str(Window(22 * 60 + 5, 24 * 60, "Asia/Tokyo")) == "22:05-24:00 Asia/Tokyo"


@pytest.mark.parametrize(
    ("rules", "want"),
    [(DefragmentRules(), False), (DefragmentRules(on_demand=True), True), (DefragmentRules(window=NIGHT), True)],
)
def test_moves_are_on_for_waiting_pods_or_in_a_window(rules, want):
    assert rules.is_on is want
