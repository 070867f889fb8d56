"""The last day of each team, from records; what cannot be read says why, and what was read before stays."""

import pytest

from webhook.addons.history.meter import Recording, UsageKey, UsageKind, UsageRow
from webhook.addons.history.store import HistoryError
from webhook.addons.page.asked import STEP_SECONDS, RecordedUsage, of_files
from webhook.addons.page.views.teams import DAY_SECONDS, sparkline

NOW = 1_795_338_000


def rows(start, *, gpus, preemptible=0):
    """The rows of one interval of five minutes in which a team held so many GPUs."""
    yield UsageRow(start, UsageKey(UsageKind.OBSERVED), 300.0)
    yield UsageRow(start, UsageKey(UsageKind.HELD_GUARANTEED, team="vision"), 300.0 * gpus)
    yield UsageRow(start, UsageKey(UsageKind.HELD_PREEMPTIBLE, team="vision"), 300.0 * preemptible)


def recorded(hours_ago, **more):
    start = NOW - hours_ago * 3600
    found = [row for number in range(3) for row in rows(start + 300 * number, **more)]
    return Recording("a", tuple(found))


async def test_points_are_averages_of_what_was_recorded_and_gaps_stay_gaps():
    asked = []

    async def read(since, until):
        asked.append((since, until))
        return [Recording("a", (*recorded(20, gpus=8).rows, *recorded(2, gpus=4, preemptible=2).rows))]

    usage = RecordedUsage(read, clock=lambda: NOW)
    assert "is being read" in usage.why_not
    await usage.refresh()
    assert asked == [(NOW - DAY_SECONDS, NOW)]
    points = usage.last_day(NOW)["vision"]
    assert [(point.at, point.used, point.preemptible) for point in points] == [
        (NOW - 20 * 3600, 8.0, 0.0),
        (NOW - 2 * 3600, 6.0, 2.0),
    ]
    assert STEP_SECONDS == 900
    assert sparkline(points, now=NOW).words == "least 6, mean 7, most 8 GPUs"
    assert usage.why_not == ""


async def test_a_failure_is_said_and_the_last_lines_stay():
    answers = [[recorded(3, gpus=1)], HistoryError("the server is away")]

    async def read(_since, _until):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    usage = RecordedUsage(read, clock=lambda: NOW)
    await usage.refresh()
    await usage.refresh()
    assert "the server is away" in usage.why_not
    assert usage.last_day(NOW)["vision"]


async def test_a_file_that_is_no_history_is_said(tmp_path):
    (tmp_path / "h.db").write_text("no history")
    with pytest.raises(HistoryError, match="is not a history"):
        await of_files([tmp_path / "h.db"])(0, 1)
