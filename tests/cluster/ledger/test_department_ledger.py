"""The teams of a department charge one object, over real HTTP, while policy moves them."""

import asyncio
import json

import pytest

from tests.cluster.support.replica import YES, Counts, beside
from tests.cluster.support.stores import unexpected, until
from tests.core.support.departments import department
from tests.core.support.make import gpus, pod, policy, resident, team, world
from webhook.cluster.ledger.ledger import ApiLedger
from webhook.cluster.ledger.ledger_objects import PATH
from webhook.core.model.amounts import DepartmentName, TeamName
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge, Deny
from webhook.core.model.reasons import Code
from webhook.core.quota.charges import InFlightCharge, LedgerDecision
from webhook.core.quota.limits import Account, Request, violations
from webhook.core.quota.usage import department_ledger
from webhook.kube.ledger.team_ledger import object_name

A, B = TeamName("team-a"), TeamName("team-b")
LEFT = "/" + object_name(department_ledger(DepartmentName("left")))


def tree(limit):
    left = department("left", limit_=limit)
    teams = (team(name, guaranteed=0, limit_=4, departments=(left,)) for name in (A, B))
    return policy(*teams, departments=(left,))


class Replica:
    """One process's ledger; its requests are judged by the limits of its policy."""

    def __init__(self, connection, policy_):
        self.world, self.counts, self.reached = world(policy_, nodes=[]), Counts(), 0
        self.ledger = ApiLedger(
            connection,
            self.world,
            reached=lambda: self.reached,
            recorder=self.counts,
            known={}.get,
            on_restored=unexpected,
        )

    async def ask(self, uid, name, *, seconds=20.0):
        def judge():
            account = Account(self.world.policy.team(name), self.world.usage(name), None, pod(1))
            if broken := violations(Request(gpus(1)), account):
                return LedgerDecision(Deny(broken), None)
            made = resident(1, uid=uid, namespace=name, tier="preemptible")
            return LedgerDecision(YES, InFlightCharge(made, Charge(name, Tier.PREEMPTIBLE, gpus(1)), None))

        deadline = asyncio.get_running_loop().time() + seconds
        return await self.ledger.commit(judge, deadline=deadline, is_gone=lambda: False)


@pytest.fixture
async def make(connection):
    made = []

    def start(limit=5.0, policy_=None):
        made.append(Replica(connection, policy_ or tree(limit)))
        return made[-1]

    yield start
    for each in made:
        await each.ledger.close()


def charged(api, name):
    return sorted(each["uid"] for each in api.objects[PATH][name]["ledger"]["inFlight"])


async def test_the_charges_of_all_teams_of_a_department_are_in_one_object(api, make):
    one = make()
    assert [await one.ask("a0", A), await one.ask("b0", B)] == [YES, YES]
    assert charged(api, LEFT) == ["a0", "b0"]
    assert [each.get("team") for each in api.objects[PATH][LEFT]["ledger"]["inFlight"]] == [A, B]
    assert api.objects[PATH][LEFT]["status"]["reserved"] == "2"
    assert api.objects[PATH][LEFT]["status"]["limit"] == "5"
    assert api.objects[PATH]["/team-a"]["ledger"]["home"] == "left"


async def test_a_team_that_fills_a_ledger_is_asked_again_and_others_are_charged(api, make, monkeypatch):
    one = make(policy_=tree(9.0))
    assert [await one.ask(f"a{number}", A) for number in range(3)] + [await one.ask("b0", B)] == [YES] * 4
    size = len(json.dumps(api.objects[PATH][LEFT]))
    monkeypatch.setattr("webhook.cluster.ledger.ledger_objects.MAX_LEDGER_BYTES", 3 * size // 2)
    refused = await one.ask("a3", A)
    assert refused.reason.code is Code.LEDGER_FULL
    assert refused.reason.text.startswith("team team-a fills its ledger with charges")
    assert await one.ask("b1", B) is YES
    monkeypatch.undo()
    assert await one.ask("a3", A) is YES


async def test_replicas_and_teams_together_never_exceed_the_limit_of_the_department(api, make):
    one, other = make(), make()
    requests = [(each, name, number) for each in (one, other) for name in (A, B) for number in range(3)]
    answers = await asyncio.gather(
        *(each.ask(f"{name}-{each is one}-{number}", name) for each, name, number in requests)
    )
    assert sum(answer is YES for answer in answers) == 5
    assert all(answer is YES or "department left" in answer.reasons[0].text for answer in answers)
    assert len(charged(api, LEFT)) == 5
    assert "conflict" in one.counts.results + other.counts.results


async def test_a_team_of_a_department_without_a_limit_has_its_own_object(api, make):
    one = make(limit=None)
    assert await one.ask("a0", A) is YES
    assert charged(api, "/team-a") == ["a0"]
    assert list(api.objects[PATH]) == ["/team-a"]


async def test_while_an_edit_reaches_one_replica_after_the_other_no_team_is_over_its_limit(api, make):
    """The old replica charges team-a's own object until the new one closes it; then it follows to the department's."""
    old, new = make(policy_=policy(team(A, guaranteed=0, limit_=4), team(B, guaranteed=0, limit_=4))), make()
    assert await old.ask("a0", A) is YES
    both = [(f"a-{n}-{who}", each) for who, each in enumerate((old, new)) for n in range(4)]
    answers = await asyncio.gather(*(each.ask(uid, A) for uid, each in both))
    assert sum(answer is YES for answer in answers) == 3
    assert api.objects[PATH]["/team-a"]["ledger"]["home"] == "left"
    assert len(charged(api, "/team-a")) + len(charged(api, LEFT)) == 4


async def test_a_charge_that_is_withdrawn_leaves_the_object_that_lists_it(api, make):
    one = make()
    await one.ask("a0", A)
    one.ledger.withdraw(A, "a0")
    await until(lambda: charged(api, LEFT) == [])
    assert one.world.usage(A).total == 0


async def test_a_leader_joins_and_settles_without_any_request(api, make):
    one = make()
    async with beside(one.ledger.reconcile(is_leader=lambda: True)):
        await until(lambda: api.objects.get(PATH, {}).get(LEFT, {}).get("ledger", {}).get("members") == {A: 1, B: 1})
