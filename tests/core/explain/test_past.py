"""What likely starts are made of."""

from webhook.core.explain.line_places import Run
from webhook.core.explain.line_rows import NO_PAST, Past


def test_waits_are_those_of_the_runs():
    past = Past(iter([Run("u", "a", 160, gpus=1000, created=100)]))
    assert past.waits.of("a", 1000).longest == 60
    assert len(past.runs) == 1
    assert NO_PAST.waits.of("a", 1000) is None
    assert NO_PAST.no_evictor == ""
