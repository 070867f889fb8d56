"""The report page: one file that loads nothing, each plot with its table, whatever policies and teams are called."""

from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from webhook.addons.simulation.simulate.plots import WIDTH, Bar, Curve, Polyline, Text, bar_plot, line_plot
from webhook.addons.simulation.simulate.results import GroupReport, PolicyReport, PurchaseReport, SimulationReport
from webhook.addons.simulation.simulate.run import plots_of, to_html
from webhook.addons.simulation.summary import Interval, Sample

HOSTILE = "<script>alert(1)</script>\x1b[31m"


def number(mean, margin=None):
    return Interval(mean, margin)


def group(name="all", *, p90=3600.0):
    wait = None if p90 is None else number(p90)
    counts = (number(10), wait, wait, wait, number(0), number(0), number(1), number(5.5), number(0.5))
    return GroupReport(name, *counts)


def report(*names, rounds=1, **more):
    samples = [Sample(at * 3600, 4.0, 2.0, 1, 8.0, 0.25, 0.5, 0.0, 4.0) for at in range(5)]
    policies = [
        PolicyReport(
            name,
            f"hash-of-{name}",
            16,
            2,
            14_400,
            number(0.5),
            number(0.25),
            number(0.5),
            number(0.0),
            group(),
            [group("vision", **more)],
            [group("1")],
            samples,
            [],
            [],
        )
        for name in names
    ]
    purchase = PurchaseReport(names[0], 8, "H100", 2, {0: None, 1: 7200.0, 2: 60.0})
    return SimulationReport("1.2.3", rounds, 7, policies, [purchase], ["a note"])


def html(found, *, source="2 nodes"):
    return to_html(found, source=source, made="2026-11-26 06:00 UTC")


class Page(HTMLParser):
    """Counts what a page has."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in {"src", "href", "data", "action"}]


def test_the_page_loads_nothing_and_runs_nothing():
    text = html(report("a", "b"))
    page = Page(text)
    assert page.addresses == []
    assert not {"script", "link", "iframe", "img", "object"} & set(page.tags)
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text


def test_every_plot_has_its_table():
    page = Page(html(report("a")))
    assert page.tags.count("svg") == page.tags.count("details") == len(plots_of(report("a"))) == 7


def test_names_cannot_change_the_page():
    text = html(report(HOSTILE), source=HOSTILE)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text


def test_each_plot_is_an_svg_file_by_itself():
    for plot in plots_of(report("a", HOSTILE)):
        root = ElementTree.fromstring(plot.svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.attrib["aria-label"] == plot.title


def test_a_wait_without_end_has_no_bar_and_says_so():
    plot = plots_of(report("a", p90=None))[0]
    assert ">never</text>" in plot.svg
    assert plot.rows == (("vision", "never"),)


def test_the_page_says_when_and_of_what_it_was_made():
    text = html(report("a", "b"))
    for fact in ("2026-11-26 06:00 UTC", "1.2.3", "a: hash-of-a<br>b: hash-of-b"):
        assert f"<dd>{fact}</dd>" in text


def test_a_single_round_says_that_nothing_is_known_of_others():
    text = html(report("a"))
    assert "One round, of seed 7: how far the numbers of another load like it are off is not known." in text
    assert "lowest" not in text


def test_rounds_say_their_seeds_and_how_far_apart_they_were():
    found = report("a", rounds=5)
    found.policies[0].total.wait_p90 = Interval(3600.0, 600.0, 1800.0, 5400.0)
    text = html(found)
    assert "5 rounds, of the seeds 7 to 11." in text
    assert "<td>30m to 90m</td>" in text


def test_purchases_and_notes_are_on_the_page():
    text = html(report("a"))
    assert "a: buy 2 nodes of 8 H100: 16 GPUs" in text
    assert "<p>a note</p>" in text


@pytest.mark.parametrize("values", [[0.0], [0.0004], [7], [1e9]])
def test_plots_of_any_size_stay_inside_their_frame(values):
    plots = [
        bar_plot("b", "bars", ["g"], [("a", values)]),
        line_plot("l", "lines", [Curve("a", ((0.0, values[0]), (5.0, values[0])))]),
    ]
    for plot in plots:
        marks, height = plot.drawing.marks, plot.drawing.height
        lines = [place for mark in marks if isinstance(mark, Polyline) for place in mark.points]
        corners = [(mark.x, mark.y) for mark in marks if not isinstance(mark, Polyline)]
        bars = [(mark.x + mark.width, mark.y + mark.height) for mark in marks if isinstance(mark, Bar)]
        assert len(bars) == (plot.name == "b")
        assert all(0 <= x <= WIDTH and 0 <= y <= height for x, y in [*lines, *corners, *bars])


def test_a_legend_of_many_policies_stays_clear_of_the_title_and_of_the_lines():
    curves = [Curve(f"a policy with a long name {number}", ((0.0, 1.0), (5.0, 1.0))) for number in range(12)]
    drawing = line_plot("l", "A title that is as long as the plot is wide", curves).drawing
    texts = {mark.text: mark for mark in drawing.marks if isinstance(mark, Text)}
    samples = [mark for mark in drawing.marks if isinstance(mark, Polyline) and mark.width == 4]
    highest = min(mark.points[0][1] for mark in drawing.marks if isinstance(mark, Polyline) and mark.width == 2)
    assert all(texts[drawing.title].y < sample.points[0][1] - 8 < highest - 16 for sample in samples)
    assert len({(sample.points[0]) for sample in samples}) == 12
    assert all(texts[curve.name].x + 7 * len(curve.name) < WIDTH for curve in curves)


def test_times_have_round_numbers():
    plot = line_plot("l", "lines", [Curve("a", ((0.0, 1.0), (2.97 * 86_400, 1.0)))])
    bottom = max(mark.points[0][1] for mark in plot.drawing.marks if isinstance(mark, Polyline))
    below = [mark.text for mark in plot.drawing.marks if isinstance(mark, Text) and mark.y == bottom + 18]
    assert below == ["0", "0.8", "1.6", "2.4"]


def test_plots_of_nothing():
    assert line_plot("l", "lines", []).rows == ()
    assert bar_plot("b", "bars", [], []).rows == ()
