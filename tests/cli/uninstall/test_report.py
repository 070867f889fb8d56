"""The lines of `fairgate uninstall`."""

import pytest

from webhook.cli.uninstall.run import UninstallReport, line_of, step_report, summary_of
from webhook.cluster.uninstall.removal import PlannedStep, Step


def planned(*objects, is_kept=False):
    return PlannedStep(Step.LINE, "let go", objects, is_kept)


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        ((), "line         planned nothing"),
        (("Pod a/b",), "line         planned Pod a/b: let go"),
        (("p1", "p2", "p3", "p4", "p5"), "line         planned p1, p2, p3 and 2 more: let go"),
    ],
)
def test_a_line_names_the_first_objects(objects, want):
    assert line_of(step_report(planned(*objects), is_over=False)) == want


def test_a_step_is_done_kept_or_failed():
    assert step_report(planned("p"), is_over=True).state == "done"
    assert step_report(planned("p", is_kept=True), is_over=True).state == "kept"
    failed = step_report(planned("p"), is_over=True, failed=("p: cannot patch pods: 500",))
    assert line_of(failed) == "line         failed  p: let go\n  failed: p: cannot patch pods: 500"


def test_the_end_says_what_is_left_and_whether_to_run_it_again():
    report = UninstallReport(
        False, False, [], "", [step_report(planned("p"), is_over=True, failed=("p: x",))], ["Events"]
    )
    assert summary_of(report) == "\n1 object could not be changed: run it again; left on purpose:\n  Events\n"
    report = UninstallReport(False, True, [], "", [], ["Events"])
    assert summary_of(report) == "\nFairgate is uninstalled; left on purpose:\n  Events\n"
