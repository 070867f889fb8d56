from pathlib import Path

from tests.docs.metrics_page import evictor, page, server

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_metrics_is_current():
    assert (ROOT / "docs" / "reference" / "metrics.md").read_text() == page(), "run `make docs`"


def test_every_metric_has_a_sample_from_which_the_page_has_its_labels():
    for metrics in (server(), evictor()):
        assert [each.name for each in metrics.registry.collect() if not each.samples] == []
