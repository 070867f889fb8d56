"""The report in a real Chromium: on a phone and on a desk, in the light and in the dark."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.addons.simulation.simulate.test_page import html, report

LOOKS = {
    "a phone": {"viewport": {"width": 390, "height": 844}},
    "a phone in the dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
    "a desk": {"viewport": {"width": 1440, "height": 900}},
}
SMALLEST = 10
"""Pixels of the height of a letter that can be read."""


@pytest.fixture
def opened(tmp_path, window):
    names = ("borrow.yaml", "a-policy-with-a-name-that-is-longer-than-a-phone-is-wide.yaml")
    (tmp_path / "report.html").write_text(html(report(*names, rounds=5)))

    def open_report(**options):
        page = window(**options).page
        page.goto((tmp_path / "report.html").as_uri())
        return page

    return open_report


@pytest.mark.parametrize("look", LOOKS)
def test_the_report_fits_is_large_enough_and_keeps_the_rules_of_axe(opened, look):
    page = opened(**LOOKS[look])
    assert page.evaluate("document.documentElement.scrollWidth") <= LOOKS[look]["viewport"]["width"]
    heights = page.evaluate(
        "[...document.querySelectorAll('svg text')].map(each => each.getBoundingClientRect().height)"
    )
    assert min(heights) >= SMALLEST
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(each["id"], [node["html"][:120] for node in each["nodes"]]) for each in found] == []


def test_a_wide_table_scrolls_by_itself_and_keeps_its_first_column(opened):
    page = opened(**LOOKS["a phone"])
    table = page.locator(".wide").first
    name = table.locator("tbody th").first
    before = name.bounding_box()["x"]
    table.evaluate("each => each.scrollLeft = 200")
    assert table.evaluate("each => each.scrollLeft") == 200
    assert name.bounding_box()["x"] == before


def test_plots_are_beside_each_other_where_there_is_room(opened):
    tops = {
        look: [each.bounding_box()["y"] for each in opened(**LOOKS[look]).locator("figure").all()] for look in LOOKS
    }
    assert tops["a desk"][0] == tops["a desk"][1]
    assert len(set(tops["a phone"])) == len(tops["a phone"])
