"""Runs that a process remembers: bounded, and no team or user displaces others."""

from collections import Counter

from webhook.core.explain.line_places import Run
from webhook.core.model.amounts import TeamName, Uid, User
from webhook.simulation.forecast.run_times import ENDED, SeenRuns


def test_runs_that_end_are_remembered_up_to_a_number():
    runs = SeenRuns()
    runs.add(None)
    for number in range(ENDED + 10):
        runs.add(Run(Uid(f"u{number}"), TeamName("t"), started=100))
        runs.end(Uid(f"u{number}"), now=50 if number == 0 else 160)
    runs.end(Uid("never seen"), now=1)
    found = list(runs)
    assert len(found) == ENDED
    assert {run.ended - run.started for run in found} == {60}


def test_a_team_and_a_user_with_many_short_runs_forget_their_own_first():
    runs = SeenRuns()
    for number in range(50):
        runs.add(Run(Uid(f"h{number}"), TeamName("honest"), started=1, ended=9_000, user=User("ada")))
        runs.add(Run(Uid(f"o{number}"), TeamName("flood"), started=1, ended=9_000, user=User("bob")))
    for number in range(3 * ENDED):
        runs.add(Run(Uid(f"f{number}"), TeamName("flood"), started=1, ended=3, user=User("eve")))
    kept = Counter(run.user for run in runs)
    assert kept == {"ada": 50, "bob": 50, "eve": ENDED - 100}
