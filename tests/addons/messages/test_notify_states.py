"""What lasts, as the leader reports it to people: from the reports of all processes, and from its world."""

from dataclasses import dataclass, field

import pytest

from tests.addons.messages.made import NOW
from tests.core.support import make
from webhook.addons.messages.server import StateNotifier
from webhook.core.model.policy_addons import NotifyRules, NotifyTarget
from webhook.kube.ledger.reports import RefusedReport, ReplicaReport, written_at


@dataclass
class Place:
    """A server: its cluster, its Lease, its reports and its notifier, as `StateNotifier` sees them."""

    is_leading: bool = True
    problem: str | None = None
    identity: str = "me"
    stale: str | None = None
    now: float = NOW
    own: dict = field(default_factory=dict)
    replicas: dict = field(default_factory=dict)
    rules: NotifyRules = field(default_factory=lambda: NotifyRules((NotifyTarget("t"),)))
    given: list = field(default_factory=list)

    def __post_init__(self):
        self.connection = self.lease = self.reporter = self
        self.world = make.world(make.policy(make.team(limit_=10)), residents=[make.resident(10)])
        self.states = StateNotifier(self, self)

    def unix_time(self):
        return self.now

    def why_stale(self):
        return self.stale

    def describe(self, at):
        return self.report(at, **self.own)

    def report(self, at=None, **more):
        return ReplicaReport("server", at or written_at(self.now), "1", "p1", "enforce", **more)

    def set_states(self, states):
        self.given.append(sorted(f"{each.kind} {each.name} {each.process}".strip() for each in states))

    def forget_states(self):
        self.given.append("forgotten")

    def look(self):
        self.states.look()
        return self.given[-1]


@pytest.fixture
def place():
    return Place()


def test_the_leader_reports_what_lasts_anywhere(place):
    place.replicas = {"other": place.report(not_ready=["ledger: away"]), "me": place.report(not_ready=["world: old"])}
    assert place.look() == ["limits team-a", "trouble ledger other"]


def test_its_own_state_is_the_present_one(place):
    place.own = {"not_ready": ["certificate: expired"]}
    assert "trouble certificate me" in place.look()


def test_refusals_of_all_servers_are_summed(place):
    place.look()
    for count in (0, 15):
        place.own = {"refused": [RefusedReport("vision", "TeamLimitExceeded", count)]}
        place.replicas = {"other": place.report(refused=[RefusedReport("vision", "TeamLimitExceeded", count)])}
        found = place.look()
    assert "refusals vision" in found


def test_a_stale_world_changes_no_limit(place):
    place.look()
    place.stale, place.world = "pods: nothing heard", make.world()
    assert place.look() == ["limits team-a"]
    place.stale = None
    assert place.look() == []


def test_who_does_not_lead_reports_nothing_and_begins_again_later(place):
    place.is_leading = False
    assert place.look() == "forgotten"
    place.is_leading = True
    place.own = {"refused": [RefusedReport("vision", "TeamLimitExceeded", 1000)]}
    assert place.look() == ["limits team-a"]


def test_who_cannot_read_the_lease_reports_its_own_trouble_only(place):
    place.is_leading, place.problem = False, "no answer"
    place.own = {"not_ready": ["world: away"], "election": "no answer"}
    place.replicas = {"other": place.report(not_ready=["ledger: away"])}
    assert place.look() == ["trouble election me", "trouble world me"]


def test_without_a_target_nothing_is_looked_for(place):
    place.rules = NotifyRules()
    assert place.look() == "forgotten"
