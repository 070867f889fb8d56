"""The lines of `fairgate uninstall`."""

import pytest

from webhook.cli.uninstall import line_of
from webhook.cluster.uninstall import State, Step, StepReport


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        ((), "line         planned nothing"),
        (("Pod a/b",), "line         planned Pod a/b: let go"),
        (("p1", "p2", "p3", "p4", "p5"), "line         planned p1, p2, p3 and 2 more: let go"),
    ],
)
def test_a_line_names_the_first_objects(objects, want):
    assert line_of(StepReport(Step.LINE, State.PLANNED, "let go", objects)) == want


def test_what_failed_is_below_its_step():
    failed = StepReport(Step.LINE, State.FAILED, "let go", ("Pod a/p",), ("Pod a/p: cannot patch pods: 500",))
    assert line_of(failed) == "line         failed  Pod a/p: let go\n  failed: Pod a/p: cannot patch pods: 500"
