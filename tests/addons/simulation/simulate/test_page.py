"""The report page: one file that loads nothing, each plot with its table, whatever policies and teams are called."""

from html import escape
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from webhook.addons.simulation.simulate import plots, run
from webhook.addons.simulation.simulate.plots import Curve, bar_plot, line_plot
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


@pytest.fixture
def no_plots(monkeypatch):
    """A page without the extra that draws: each plot takes long, and has names of its own."""
    monkeypatch.setattr(run, "can_draw", lambda: False)


class Page(HTMLParser):
    """Counts what a page has."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in {"src", "href", "data", "action"}]


def test_the_page_loads_nothing_and_runs_nothing_and_every_plot_has_its_table():
    text = html(report("a", "b"))
    page = Page(text)
    assert page.tags.count("img") == page.tags.count("details") == len(plots_of(report("a"))) == 7
    assert all(address.startswith("data:image/svg+xml;base64,") for address in page.addresses)
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text


@pytest.mark.usefixtures("no_plots")
def test_without_the_extra_the_page_has_tables_and_says_what_to_install():
    text = html(report("a"))
    page = Page(text)
    assert (page.tags.count("img"), page.tags.count("details")) == (0, 7)
    assert escape(plots.MISSING) in text


@pytest.mark.usefixtures("no_plots")
def test_names_cannot_change_the_page():
    text = html(report(HOSTILE), source=HOSTILE)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.slow
def test_each_plot_is_an_svg_file_by_itself_with_its_title_and_the_names_as_they_are():
    names = ("a", HOSTILE, r"$\frac{$ \undefined")
    for plot in plots_of(report(*names)):
        root = ElementTree.fromstring(plot.svg())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
        assert {"a", "<script>alert(1)</script>\\x1b[31m", names[2]} <= set(texts)


def test_the_same_report_has_the_same_plots():
    first, again = (plots_of(report("a")) for _ in range(2))
    assert [first[0].svg(), first[-1].svg()] == [again[0].svg(), again[-1].svg()]  # bars, and lines


def test_a_wait_without_end_has_no_bar_and_says_so():
    plot = plots_of(report("a", p90=None))[0]
    assert ">never</text>" in plot.svg()
    assert plot.rows == (("vision", "never"),)


@pytest.mark.usefixtures("no_plots")
def test_the_page_says_when_and_of_what_it_was_made():
    text = html(report("a", "b"))
    for fact in ("2026-11-26 06:00 UTC", "1.2.3", "a: hash-of-a<br>b: hash-of-b"):
        assert f"<dd>{fact}</dd>" in text
    assert "One round, of seed 7: how far the numbers of another load like it are off is not known." in text
    assert "lowest" not in text
    assert "a: buy 2 nodes of 8 H100: 16 GPUs" in text
    assert "<p>a note</p>" in text


@pytest.mark.usefixtures("no_plots")
def test_rounds_say_their_seeds_and_how_far_apart_they_were():
    found = report("a", rounds=5)
    found.policies[0].total.wait_p90 = Interval(3600.0, 600.0, 1800.0, 5400.0)
    text = html(found)
    assert "5 rounds, of the seeds 7 to 11." in text
    assert "<td>30m to 90m</td>" in text


def test_a_plot_has_a_line_for_each_policy_and_its_table_the_times_of_all():
    curves = [Curve("a", ((0.0, 1.0), (3600.0, 2.0))), Curve("b", ((0.0, 1e9),))]
    plot = line_plot("l", "lines", curves)
    assert (plot.head, plot.rows) == (("hours", "a", "b"), (("0.00", "1", "1e+09"), ("1.00", "2", "")))
    assert plot.svg().count('id="line2d_') > len(curves)


@pytest.mark.parametrize("plot", [line_plot("l", "lines", []), bar_plot("b", "bars", [], [])])
def test_plots_of_nothing(plot):
    assert plot.rows == ()
    assert "<svg" in plot.svg()
