"""Text for people: numbers with nouns, ages, amounts, and escaped names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.model.amounts import (
    CPU,
    MEMORY,
    ONE_GPU,
    ResourceName,
    amount_text,
    coarse_age,
    duration,
    place_text,
    plural,
    plural_gpus,
    printable,
    printable_lines,
    shortened,
    span,
)


@pytest.mark.parametrize(("count", "want"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (12_345, "12,345 nodes")])
def test_nouns_follow_their_number(count, want):
    assert plural(count, "node") == want


@pytest.mark.parametrize(
    ("units", "want"),
    [
        (0, "0 GPUs"),
        (ONE_GPU, "1 GPU"),
        (ONE_GPU // 2, "0.5 GPUs"),
        (2 * ONE_GPU, "2 GPUs"),
        (30_761, "about 0.037 GPUs"),
    ],
)
def test_gpus_follow_their_number(units, want):
    assert plural_gpus(units) == want


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0, ""),
        (599, ""),
        (600, "10m"),
        (3_599, "50m"),
        (3_600, "1h"),
        (172_799, "47h"),
        (172_800, "2d"),
    ],
)
def test_ages_are_coarse(seconds, want):
    assert coarse_age(seconds) == want


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0, "0s"),
        (59, "59s"),
        (119, "119s"),
        (120, "2m"),
        (7_199, "120m"),
        (7_200, "2h"),
        (20_160, "6h"),
        (172_800, "2d"),
    ],
)
def test_ages_and_waits_are_in_one_unit(seconds, want):
    assert span(seconds) == want


def test_a_place_in_line_reads_alike_with_and_without_its_team():
    assert place_text(2) == "2nd in the queue"
    assert place_text(2, "a", 5) == "2nd in the queue of team a, 5th of all"


@pytest.mark.parametrize(
    ("resource", "amount", "want"),
    [
        (CPU, 64_000, "64"),
        (CPU, 1_500, "1500m"),
        (MEMORY, 512 << 30, "512Gi"),
        (MEMORY, 1_536 << 20, "1.5Gi"),
        (MEMORY, 1_500 << 20, "1500Mi"),
        (MEMORY, 1_056_270_164 << 10, "1007.3Gi"),
        (MEMORY, 2013 << 30, "2013Gi"),
        (MEMORY, 2 << 40, "2Ti"),
        (MEMORY, 12, "12"),
        (ResourceName("hugepages-2Mi"), 4 << 20, "4Mi"),
        (ResourceName("nvidia.com/gpu"), 8, "8"),
    ],
)
def test_amounts_are_formatted_as_in_a_manifest(resource, amount, want):
    assert amount_text(resource, amount) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("plain", "plain"),
        ("größe ✅", "größe ✅"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b2J", r"\x9b2J"),
        ("\u202egnp", r"\u202egnp"),
        ("\ud800", r"\ud800"),
    ],
)
def test_control_characters_are_escaped(text, want):
    assert printable(text) == want


@given(st.text())
def test_escaped_text_is_printable_and_stays_so(text):
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
    assert printable_lines(text).count("\n") == text.count("\n")


def test_a_long_text_is_cut():
    assert (shortened("abcd", 4), shortened("abcde", 4)) == ("abcd", "abc…")


@pytest.mark.parametrize(
    ("seconds", "want"), [(0, "0s"), (10, "10s"), (300, "5m"), (5400, "1h30m"), (86_400, "24h"), (3661, "1h1m1s")]
)
def test_a_duration_is_written_as_in_policy_files(seconds, want):
    assert duration(seconds) == want
