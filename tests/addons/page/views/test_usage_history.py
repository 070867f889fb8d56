"""The line of the last day as a picture and in words."""

from webhook.addons.page.views.teams import DAY_SECONDS, HEIGHT, WIDTH, Point, sparkline, summed

NOW = 1_000_000


def test_a_line_spans_the_day_and_says_its_numbers():
    points = [Point(NOW - DAY_SECONDS, 0, 0), Point(NOW - DAY_SECONDS // 2, 8, 2), Point(NOW, 4, 0)]
    found = sparkline(points, now=NOW)
    assert found.points == f"0.0,{HEIGHT - 1:.1f} {WIDTH / 2},1.0 {WIDTH:.1f},12.0"
    assert found.words == "least 0, mean 4, most 8 GPUs"


def test_what_is_older_than_a_day_or_a_single_point_draws_no_line():
    assert sparkline([Point(NOW - 2 * DAY_SECONDS, 1, 0), Point(NOW, 1, 0)], now=NOW) is None
    assert sparkline([], now=NOW) is None
    assert sparkline([Point(NOW - 60, 0, 0), Point(NOW, 0, 0)], now=NOW).words.startswith("least 0")


def test_amounts_are_rounded_to_what_can_be_read():
    points = [Point(NOW - 60, 3.01236, 0), Point(NOW, 1234.56, 0)]
    assert sparkline(points, now=NOW).words == "least 3, mean 618.8, most 1,234.6 GPUs"


def test_teams_are_summed_where_one_of_them_is_known():
    one, other = [Point(0, 1, 0), Point(900, 2, 1)], [Point(900, 4, 2), Point(1800, 5, 0)]
    assert summed([one, other]) == [Point(0, 1, 0), Point(900, 6, 3), Point(1800, 5, 0)]
    assert summed([]) == []
