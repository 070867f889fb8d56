"""What a pod says of its run: its annotation, and what is ignored."""

import pytest

from webhook.core.model.pod import NO_RUN_TIME, RunTime
from webhook.kube.objects import keys
from webhook.kube.pod.pods import stated_run_time


def said(text):
    return stated_run_time({keys.RUN_TIME: text})


def test_nothing_is_said():
    assert stated_run_time({}) is NO_RUN_TIME
    assert stated_run_time({"other": "2h"}) == NO_RUN_TIME


@pytest.mark.parametrize(("text", "want"), [("2h", 7200), ("1s", 1), ("8760h", 365 * 86_400), ("1h30m", 5400)])
def test_a_duration_is_a_statement(text, want):
    assert said(text) == RunTime(want)


BAD = ["soon", "-2h", "87600h", "2 hours", "0", "", "0s", "8760h1s", "2h" * 50, "\x1b[31m2h", "9" * 30 + "h"]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_run_time_is_ignored_with_one_line_of_what_to_write(text):
    found = said(text)
    assert found.stated == 0
    assert found.problem.startswith("annotation fairgate.dev/run-time ")
    assert found.problem.endswith(" is ignored: write a duration such as 30m or 2h, of at most 8760h")
    assert len(found.problem) <= 120
    assert found.problem.isprintable()
