"""Which pods run times are learned from: no team, and no user in it, may fill them by many short pods.

Of each the latest are taken. What is known of a user's pods may be cut: earlier ones are left out here, or were
forgotten by what the runs were read from. Its pods that came before then are counted from then on only.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from statistics import median
from typing import Final, NamedTuple, TypeVar

from webhook.core.explain.likely_start import Run
from webhook.core.model.contributions import bounded, even
from webhook.core.model.names import TeamName, User

MAX_RUNS: Final = 10_000
"""Pods that are learned from: more cost time and add nothing."""

OF_GROUP: Final = 20
"""Ended pods of a group without which a larger group is drawn from; so many of a team or user always count."""


_IS_CUT: Final = 50
_SPAN: Final = 10
"""Where so many pods of a user ended over so many times as long as they ran, those that ended earlier are taken to be
missing. Of a user with fewer pods that is taken from those of the team."""


class Learned(NamedTuple):
    """A run, and since when all ends of its user's pods are known; 0 where nothing says that any are missing."""

    run: Run
    since: int = 0


_T = TypeVar("_T")


def latest(runs: Iterable[Run], *, now: int) -> list[Learned]:
    """Return at most MAX_RUNS runs, the latest first: as many of each team, and of each of its users, as of the others.

    None is left out while another team or user keeps more.
    """
    ordered = sorted(runs, key=lambda run: (run.ended or now, run.started, run.uid), reverse=True)
    found = _by_user(ordered, of=lambda run: run)
    users = {team: {user: len(those) for user, those in each.items()} for team, each in found.items()}
    teams = even({team: sum(counts.values()) for team, counts in users.items()}, MAX_RUNS)
    taken: list[Learned] = []
    for team, each in found.items():
        kept = {user: each[user][:most] for user, most in even(users[team], teams[team]).items()}
        of_team = _since(chain.from_iterable(kept.values()), now=now) or 0
        for those in kept.values():
            own = _since(those, now=now)
            taken += [Learned(run, of_team if own is None else own) for run in those]
    return sorted(taken, key=lambda each: (each.run.ended or now, each.run.started, each.run.uid), reverse=True)


def _since(runs: Iterable[Run], *, now: int) -> int | None:
    """Return since when all ends are known; 0 where nothing says that any are missing, None where too few are known."""
    ended = [run for run in runs if run.ended]
    if len(ended) < _IS_CUT:
        return None
    since = min(run.ended for run in ended)
    return since if now - since >= _SPAN * median(run.ended - run.started for run in ended) else 0


def balanced(learned: Sequence[Learned]) -> list[Learned]:
    """Return those of a group of which no team has more than the others on average, and no user than other users.

    What is left out is spread evenly over those of a user, so that ended and running ones remain in proportion.
    """
    found = _by_user(learned, of=lambda each: each.run)
    users = {
        team: bounded({user: len(those) for user, those in each.items()}, floor=OF_GROUP)
        for team, each in found.items()
    }
    teams = bounded({team: sum(counts.values()) for team, counts in users.items()}, floor=OF_GROUP)
    return [
        each[user][index * len(each[user]) // most]
        for team, each in found.items()
        for user, most in even(users[team], teams[team]).items()
        for index in range(most)
    ]


def _by_user(items: Iterable[_T], *, of: Callable[[_T], Run]) -> dict[TeamName, dict[User | None, list[_T]]]:
    found: dict[TeamName, dict[User | None, list[_T]]] = {}
    for item in items:
        run = of(item)
        found.setdefault(run.team, {}).setdefault(run.user, []).append(item)
    return found
