from pathlib import Path

from tests.docs.metrics_page import page

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_metrics_is_current():
    assert (ROOT / "docs" / "metrics.md").read_text() == page(), "run `make docs`"
