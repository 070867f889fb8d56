"""A hostile tenant: runs attacks at random with a namespace admin's rights, in a separate process.

In a separate process, so that its work on large bodies is not measured as that of the API server or Fairgate.
"""

from __future__ import annotations

import http.client
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tests.attacks.attacker import Attacker
from tests.chaos.attacks import borrowing, evidence, limits, sizes
from tests.chaos.attacks.evidence import ReachedError
from tests.chaos.attacks.means import Action, Scene, collection
from tests.control_plane.api import Api, ApiError

ALL: tuple[Action, ...] = (*limits.ACTIONS, *sizes.ACTIONS, *borrowing.ACTIONS, *evidence.ACTIONS)
LARGE: tuple[Action, ...] = sizes.DRY_RUNS
SERVER_ERROR = 500
PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the API server as any user: what an `Attacker` needs of a control plane."""

    port: int
    ca_pem: bytes
    token: str

    def acting_as(self, user: str) -> Api:
        """The API as a plain user."""
        return Api(port=self.port, ca_pem=self.ca_pem, token=self.token, acts_as=user)


@dataclass(slots=True)
class Outcome:
    """The final responses to attacks, those that failed because of the server, and what was gained."""

    answers: Counter[str] = field(default_factory=Counter)
    outages: Counter[str] = field(default_factory=Counter)
    reached: set[str] = field(default_factory=set)
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    """Each attack with its begin and end, by the machine's monotonic clock, which all processes share."""

    def add(self, other: Outcome) -> None:
        """Add another outcome."""
        self.answers += other.answers
        self.outages += other.outages
        self.reached |= other.reached
        self.spans += other.spans


@dataclass(frozen=True, slots=True)
class HostileTenant:
    """The namespaces of an attacker, each with the user's name, and the targets."""

    access: Access
    users: tuple[tuple[str, str], ...]
    scene: Scene
    is_decoy: bool = False
    """Whether only the large bodies are sent, which the API server has to read in any case."""

    def play(self, seconds: float, seed: str) -> Outcome:
        """Attack for a while from all namespaces at the same time, then delete everything that would continue."""
        outcome, until = Outcome(), time.monotonic() + seconds
        attackers = [Attacker(self.access, *user, self.access.acting_as(user[1])) for user in self.users]
        with ThreadPoolExecutor(len(attackers)) as hands:
            for played in hands.map(
                lambda each: self._attack(each, until, random.Random(f"{seed}/{each.user}")), attackers
            ):
                outcome.add(played)
        sizes.let_go()
        for attacker in attackers:
            _leave(attacker)
        return outcome

    def _attack(self, attacker: Attacker, until: float, dice: random.Random) -> Outcome:
        """Run each attack once before any is repeated."""
        outcome = Outcome()
        actions = LARGE if self.is_decoy else ALL
        while True:
            for action in dice.sample(actions, len(actions)):
                if time.monotonic() > until:
                    return outcome
                outcome.add(_play(attacker, action, self.scene, dice))
                time.sleep(PAUSE_SECONDS * dice.random())


def _play(attacker: Attacker, action: Action, scene: Scene, dice: random.Random) -> Outcome:
    outcome, began = Outcome(), time.monotonic()
    try:
        action(attacker, scene, dice)
        answer = "done"
    except ApiError as error:
        answer = str(error.status)
        if error.status >= SERVER_ERROR:
            outcome.outages[f"{action.__name__}: {error}"[:300]] += 1
    except ReachedError as error:
        answer = "reached"
        outcome.reached.add(str(error))
    except (OSError, http.client.HTTPException) as error:
        answer = type(error).__name__
        outcome.outages[f"{action.__name__}: {error!r}"] += 1
    outcome.answers[f"{action.__name__}: {answer}"] += 1
    outcome.spans.append((action.__name__, began, time.monotonic()))
    return outcome


def _leave(attacker: Attacker) -> None:
    for group, plural in (
        ("apps/v1", "daemonsets"),
        ("policy/v1", "poddisruptionbudgets"),
        ("v1", "pods"),
        ("resource.k8s.io/v1", "resourceclaims"),
    ):
        with suppress(ApiError):
            attacker.api.delete(collection(attacker, group, plural), {"gracePeriodSeconds": 0})


def decoy_of(tenant: HostileTenant, *users: tuple[str, str]) -> HostileTenant:
    """The same from namespaces that are exempt."""
    return replace(tenant, users=users, is_decoy=True)


def access_to(cluster: Any) -> Access:
    """The access of an attacker to a control plane."""
    return Access(cluster.ports.api_server, cluster.authority.pem, cluster.token)
