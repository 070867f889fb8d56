"""The leader's releases against an API server over real HTTP: charged first, then one patch."""

import asyncio
import json

import pytest

from tests.cluster.support.fake_api import Answer, Cut, Held
from tests.core.support import make
from tests.cycles import cycles
from tests.server.support.harness import until
from tests.server.support.releases import PODS, TEAM_LEDGERS, A, charged, lines, staged
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.starting import starts as assumed_starts
from webhook.core.starting.starts import AssumedStarts
from webhook.kube.ledger.team_ledger import MAX_LEDGER_BYTES
from webhook.kube.objects import keys
from webhook.server.leader import start_loop

PATCH_P = "patch /api/v1/namespaces/team-a/pods/p"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(start_loop, "POLL_SECONDS", 0.2)


async def test_a_pod_starts_when_the_limit_has_room_again(tmp_path):
    async with staged(tmp_path) as stage:
        stage.hold("holder", 4)
        await until(lambda: stage.world.usage(A).total)
        stage.queue()
        await stage.looks()
        assert stage.is_gated()
        assert stage.listed() == set()
        stage.api.delete(PODS, "holder", namespace="team-a")
        await until(lambda: not stage.is_gated())
        assert stage.pod()["metadata"]["labels"][keys.TIER] == "guaranteed"
        await until(lambda: len(stage.world.waiting) == 0)
        assert stage.world.usage(A).total == make.gpus(1)
        await until(lambda: stage.listed() == set())
        await stage.looks()
        assert stage.releaser.counts.released == {(A, "inTurn"): 1}
    assert [line["name"] for line in lines(tmp_path, "pod released")] == ["p"]


async def test_a_line_whose_passes_start_no_pod_is_noticed_until_the_term_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(start_loop, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(assumed_starts, "STALLED_SECONDS", 1)
    monkeypatch.setattr(assumed_starts.AssumedStarts, "due", lambda *_, **__: [])
    async with staged(tmp_path) as stage:
        stage.queue()
        await until(lambda: "team team-a, may start now" in stage.releaser.stalled.problem)
    assert (stage.releaser.stalled.seconds, stage.releaser.stalled.problem) == (0, "")


async def test_releases_leave_nothing_in_memory(tmp_path):
    """A service collects what refers to itself only once there is much of it."""
    async with staged(tmp_path, limit=100, guaranteed=100, nodes=10) as stage:

        async def release(name):
            for number in range(20):
                stage.queue(f"{name}{number}")
            await until(lambda: not any(stage.is_gated(f"{name}{number}") for number in range(20)))
            await until(lambda: stage.listed() == set())

        await release("first")
        with cycles() as found:
            await release("p")
    assert not found


async def test_it_is_charged_before_its_gate_goes(tmp_path):
    async with staged(tmp_path) as stage:
        held = Held()
        stage.api.faults[PATCH_P].append(held)
        stage.queue()
        await until(lambda: stage.listed() == {"p"})
        assert stage.is_gated()
        assert stage.world.usage(A).total == make.gpus(1)
        held.go.set()
        await until(lambda: not stage.is_gated())


async def test_a_release_that_takes_long_holds_up_no_other(tmp_path):
    async with staged(tmp_path) as stage:
        held = await stage.held_release()
        stage.queue("later")
        await until(lambda: not stage.is_gated("later"))
        assert stage.is_gated("p")
        held.go.set()
        await until(lambda: not stage.is_gated("p"))
        assert stage.world.usage(A).total == make.gpus(2)
        assert sorted(stage.patches()) == ["later", "p"]


async def test_while_releases_are_under_way_changes_gather_for_the_next_pass(tmp_path, monkeypatch):
    async with staged(tmp_path) as stage:
        held = await stage.held_release()
        passes, due = 0, AssumedStarts.due

        def counted(starts, **settings):
            nonlocal passes
            passes += 1
            return due(starts, **settings)

        monkeypatch.setattr(AssumedStarts, "due", counted)
        for _ in range(100):
            stage.releaser.wake()
            await asyncio.sleep(0.01)
        assert 5 <= passes <= 11
        held.go.set()
        await until(lambda: not stage.is_gated())


async def test_a_pod_is_released_once_though_its_charge_is_written_again(tmp_path):
    async with staged(tmp_path) as stage:
        stage.api.faults[f"post {TEAM_LEDGERS}"].extend([Answer(503)] * 3)
        stage.queue()
        await until(lambda: len(stage.world.waiting))
        while stage.is_gated():
            stage.releaser.wake()
            await asyncio.sleep(0.01)
        await stage.looks()
        assert stage.patches() == ["p"]
        assert [line["name"] for line in lines(tmp_path, "pod released")] == ["p"]


async def test_a_bounded_number_of_releases_is_under_way_and_the_others_follow(tmp_path, monkeypatch):
    monkeypatch.setattr(start_loop, "AT_ONCE", 2)
    monkeypatch.setattr(start_loop, "_ROOM_FOR_PASS", 1)
    async with staged(tmp_path) as stage:
        held = [Held() for _ in range(3)]
        for number, each in enumerate(held):
            stage.api.faults[f"patch /api/v1/namespaces/team-a/pods/p{number}"].append(each)
            stage.queue(f"p{number}", created=number)
        await until(lambda: stage.listed() == {"p0", "p1"})
        await stage.looks()
        assert stage.listed() == {"p0", "p1"}
        for each in held:
            each.go.set()
        await until(lambda: not any(stage.is_gated(f"p{number}") for number in range(3)))


async def test_no_more_start_than_the_limit_allows_and_in_the_order_of_their_age(tmp_path):
    async with staged(tmp_path, limit=3, guaranteed=3) as stage:
        for number in range(5):
            stage.queue(f"p{number}", created=number)
        await until(lambda: not stage.is_gated("p2"))
        await stage.looks()
        assert [stage.is_gated(f"p{number}") for number in range(5)] == [False] * 3 + [True] * 2
        assert stage.world.usage(A).total == make.gpus(3)


async def test_a_gate_that_certainly_stays_takes_the_charge_back_and_the_pod_rests(tmp_path):
    async with staged(tmp_path) as stage:
        stage.api.faults[PATCH_P].append(Answer(403))
        stage.queue()
        await until(lambda: "its release failed" in stage.text())
        await until(lambda: stage.listed() == set() and not stage.world.usage(A).total)
        before = stage.patches()
        await asyncio.sleep(2)
        assert stage.patches() == before, "it is not tried again at once"
        await until(lambda: not stage.is_gated())


async def test_after_an_unknown_answer_the_charge_stays_and_the_release_is_completed(tmp_path):
    async with staged(tmp_path) as stage:
        stage.api.faults[PATCH_P].append(Cut(is_carried_out=False))
        stage.queue()
        await until(lambda: lines(tmp_path, "pod not released"))
        assert (stage.listed(), stage.is_gated()) == ({"p"}, True)
        assert stage.world.usage(A).total == make.gpus(1)
        await until(lambda: not stage.is_gated())
        await until(lambda: stage.listed() == set())


async def test_a_lost_answer_to_a_patch_that_was_made_is_found_out(tmp_path):
    async with staged(tmp_path) as stage:
        stage.api.faults[PATCH_P].append(Cut(is_carried_out=True))
        stage.queue()
        await until(lambda: not stage.is_gated())
        await until(lambda: stage.listed() == set())
        assert stage.world.usage(A).total == make.gpus(1)


async def test_what_an_earlier_leader_charged_is_released_as_charged(tmp_path):
    async with staged(tmp_path, leads=False) as stage:
        stage.queue("p", 2)
        await until(lambda: len(stage.world.waiting))
        await charged_by_another(stage, "n0", 2)
        stage.lead()
        await until(lambda: not stage.is_gated())
        assert '"n0"' in json.dumps(stage.pod()["spec"]["affinity"])
        await until(lambda: stage.listed() == set())
        assert stage.world.usage(A).total == make.gpus(2)
        assert stage.patches() == ["p"]


async def charged_by_another(stage, node, count):
    """Charge the waiting pod `p` in the ledger, as a leader does that ends before it removes the gate."""
    waiting = next(iter(stage.world.waiting.all()))
    pod = waiting.pod._replace(team_label=A, tier_label="guaranteed")
    found = make.flight(pod, Charge(A, Tier.GUARANTEED, make.gpus(count)), node)
    deadline = asyncio.get_running_loop().time() + 4
    await stage.ledger.charge_waiting(A, lambda: charged(found), deadline=deadline, is_gone=lambda: False)


async def test_a_charge_that_appears_while_the_pod_is_in_line_is_counted_throughout(tmp_path):
    async with staged(tmp_path, limit=2, guaranteed=2) as stage:
        stage.hold("holder", 2)
        await until(lambda: stage.world.usage(A).total)
        stage.queue("p", 2)
        await stage.looks()
        await charged_by_another(stage, "n0", 2)
        assert stage.world.usage(A).total == make.gpus(4), "another leader may do so as its world was another"
        await until(lambda: not stage.is_gated())
        assert stage.world.usage(A).total == make.gpus(4)


async def test_a_charge_that_is_taken_back_by_another_leader_lets_the_pod_back_in_line(tmp_path):
    async with staged(tmp_path, leads=False) as stage:
        stage.queue()
        await until(lambda: len(stage.world.waiting))
        await charged_by_another(stage, "n0", 1)
        stage.api.always["patch"] = Answer(503)
        stage.lead()
        await until(lambda: lines(tmp_path, "pod not released"))
        uid = next(iter(stage.world.waiting.all())).uid
        stage.ledger.withdraw(A, uid)
        await until(lambda: stage.listed() == set())
        stage.api.always.clear()
        await until(lambda: not stage.is_gated())


async def test_while_the_ledger_cannot_be_written_nothing_is_released_and_nothing_stays_assumed(tmp_path):
    async with staged(tmp_path) as stage:
        stage.api.always["post"] = Answer(503)
        stage.queue()
        await asyncio.sleep(start_loop.CHARGE_SECONDS + 2)
        assert stage.is_gated()
        stage.api.always.clear()
        await until(lambda: not stage.is_gated())
        await until(lambda: stage.world.usage(A).total == make.gpus(1))


async def test_a_pod_that_was_deleted_when_its_turn_came_leaves_no_charge(tmp_path):
    async with staged(tmp_path) as stage:
        held = await stage.held_release()
        stage.api.delete(PODS, "p", namespace="team-a")
        held.go.set()
        await until(lambda: stage.listed() == set())
        assert stage.world.usage(A).total == 0


async def test_a_pod_that_changes_when_its_turn_came_is_judged_again(tmp_path):
    async with staged(tmp_path) as stage:
        held = await stage.held_release()
        now = stage.pod()
        stage.api.put(PODS, "p", namespace="team-a", **(now | {"spec": now["spec"] | {"nodeSelector": {"no": "node"}}}))
        held.go.set()
        await until(lambda: stage.listed() == set())
        await stage.looks(20)
        assert stage.is_gated()
        assert stage.world.usage(A).total == 0
        assert "the only node does not meet its node selector" in stage.text()


async def test_a_former_leader_leaves_what_it_charged_to_the_next(tmp_path):
    async with staged(tmp_path) as stage:
        held = await stage.held_release()
        stage.is_leading = False
        stage.redecide()  # the patch is refused, and the next one would be sent after the term
        held.go.set()
        await until(lambda: lines(tmp_path, "pod not released"))
        assert (stage.is_gated(), stage.listed()) == (True, {"p"})
        await stage.resign()
        stage.is_leading = True
        stage.lead()
        await until(lambda: not stage.is_gated())


async def test_a_replica_that_does_not_lead_remembers_no_pods_that_are_gone(tmp_path):
    async with staged(tmp_path) as stage:
        await stage.looks()
        await stage.resign()
        for number in range(20):
            stage.queue(f"p{number}")
            stage.api.delete(PODS, f"p{number}", namespace="team-a")
        stage.queue("last")
        await until(lambda: len(stage.world.waiting) == 1)
        assert len(stage.releaser._starts.entries._changed) == 0


async def test_a_pod_of_another_gate_is_neither_charged_nor_touched_until_that_goes(tmp_path):
    async with staged(tmp_path) as stage:
        stage.queue(gates=("kueue.x-k8s.io/admission", keys.QUEUE_GATE))
        await stage.looks()
        assert (stage.listed(), stage.world.usage(A).total) == (set(), 0)
        now = stage.pod()
        stage.api.put(
            PODS,
            "p",
            namespace="team-a",
            **(now | {"spec": now["spec"] | {"schedulingGates": [{"name": keys.QUEUE_GATE}]}}),
        )
        await until(lambda: not stage.is_gated())


async def test_a_charge_of_a_pod_that_its_owner_made_unreadable_does_not_stay(tmp_path):
    async with staged(tmp_path) as stage:
        held = await stage.held_release()
        now = stage.pod()
        metadata = now["metadata"] | {"annotations": now["metadata"]["annotations"] | {keys.REQUIRES: "x" * 5000}}
        stage.api.put(PODS, "p", namespace="team-a", **(now | {"metadata": metadata}))
        await until(lambda: any(each.problem for each in stage.world.waiting.all()))
        stage.redecide()  # the patch is refused, and the pod is read
        held.go.set()
        await until(lambda: stage.listed() == set())
        await stage.looks()
        assert (stage.is_gated(), stage.world.usage(A).total) == (True, 0)
        assert stage.world.waiting.count(A) == 1, "it keeps its place, and counts in the depth"


async def test_a_ledger_that_is_too_large_releases_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("webhook.cluster.ledger.ledger_objects.MAX_LEDGER_BYTES", 10)
    assert MAX_LEDGER_BYTES > 10
    async with staged(tmp_path) as stage:
        stage.queue()
        await asyncio.sleep(start_loop.CHARGE_SECONDS + 1)
        assert (stage.is_gated(), stage.listed()) == (True, set())


async def test_a_change_of_usage_makes_a_pass_only_while_a_pod_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(start_loop, "POLL_SECONDS", 60.0)
    passes = []
    async with staged(tmp_path, limit=2, guaranteed=2) as stage:
        tick = stage.world.tick
        monkeypatch.setattr(stage.world, "tick", lambda now: (passes.append(now), tick(now)))
        stage.hold("holder", 2)
        await until(lambda: stage.world.usage(A).total)
        await asyncio.sleep(0.1)
        passes.clear()
        for _ in range(3):
            stage.world.on_usage_changed()
            await asyncio.sleep(0.05)
        assert not passes
        stage.queue()
        await until(lambda: passes)
        stage.api.delete(PODS, "holder", namespace="team-a")
        await until(lambda: not stage.is_gated())
