"""A new leader goes on with what an earlier one left: its view is behind, and writes are still on their way."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests import builders
from tests.cluster.support.fake_api import Answer, Held
from tests.core.support import make
from tests.server.support.harness import until
from tests.server.support.releases import PODS, TEAM_LEDGERS, A, replica, staged
from webhook.core.starting.starts import AssumedStarts
from webhook.kube.objects import keys
from webhook.server.leader import start_loop

JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(start_loop, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(start_loop, "CHARGE_SECONDS", 1.0)  # a pass waits so long for a view that is behind


@asynccontextmanager
async def next_leader(folder, stage, *, behind="", lists_later=False, limit=4):
    """A second replica; its view of the kind `behind` stays as it is now until `catch_up`.

    `lists_later`: it lists the ledger once `see_ledger` is called, and knows nothing of what was in it before.
    """
    api = stage.api
    if behind:  # the faults are for the new one
        await until(lambda: len(api.watchers) >= len(stage.feed.watches))
    watch = Delay(api, f"watch {behind}" if behind else "")
    listing = Delay(api, f"list {TEAM_LEDGERS}" if lists_later else "")
    async with replica(folder, api, stage.connection, limit=limit, guaranteed=limit, waits=not lists_later) as other:
        await until(lambda: watch.has_begun and listing.has_begun)
        other.catch_up, other.see_ledger = watch.end, listing.end
        try:
            yield other
        finally:
            watch.end()
            listing.end()


class Delay:
    """Requests that get no answer until `end`: each is made again after a second."""

    TRIES = 100

    def __init__(self, api, what):
        self._faults, self._go = api.faults[what], asyncio.Event()
        self._is_there = bool(what)
        self._faults.extend(Held(self._go) for _ in range(self.TRIES if what else 0))

    @property
    def has_begun(self):
        return not self._is_there or len(self._faults) < self.TRIES

    def end(self):
        if self._is_there:
            self._faults.clear()
            self._go.set()


async def dies(stage, *, patching):
    """The leader dies while it removes the gates of these pods."""
    faults = [stage.api.faults[f"patch /api/v1/namespaces/team-a/pods/{name}"] for name in patching]
    await until(lambda: not any(faults))
    await stage.die()


def put_job_set(stage):
    """A JobSet of one pod, and then another."""
    template = {"spec": builders.pod(gpus=2)["spec"]}
    jobs = [{"name": name, "replicas": 1, "template": {"spec": {"template": template}}} for name in ("first", "then")]
    spec = {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": jobs}
    stage.api.put(JOB_SETS, "js", namespace="team-a", spec=spec, apiVersion="jobset.x-k8s.io/v1alpha2", kind="JobSet")


async def rounds(stage, count=3):
    """Let the leader look at the line so often, and write what it then wants to: what is not done is not to be done."""
    releaser, passes = stage.releaser, 0
    reconcile = releaser._reconcile

    async def counted(group):
        nonlocal passes
        is_more = await reconcile(group)
        passes += 1
        return is_more

    releaser._reconcile = counted
    while passes < count:
        assert not stage.running.done(), stage.running
        releaser.wake()
        await asyncio.sleep(0.01)
    releaser._reconcile = reconcile
    writer = stage.ledger._writer(A)
    await until(lambda: writer.is_idle or writer.problem)


async def test_room_that_is_kept_stays_while_the_view_shows_its_gang_not_started_yet(tmp_path):
    async with staged(tmp_path) as old:
        put_job_set(old)
        held = Held()
        old.api.faults[f"post {TEAM_LEDGERS}"].append(held)
        old.queue("first", 2, of="js")
        await until(lambda: not old.api.faults[f"post {TEAM_LEDGERS}"])
        async with next_leader(tmp_path, old, behind=PODS, lists_later=True) as new:
            await until(lambda: len(new.world.waiting))
            held.go.set()
            await until(lambda: not old.is_gated("first"))
            await until(lambda: old.listed() == {"first-follower-0"})
            await old.die()
            new.see_ledger()
            await new.feed.wait_synced()
            new.lead()
            await rounds(new)
            assert new.listed() == {"first-follower-0"}
            new.catch_up()
            new.queue("then", 2, of="js")
            await until(lambda: not new.is_gated("then"))
            await until(lambda: not new.listed())
            assert new.releaser.counts.released == {(A, "inTurn"): 1}


async def test_room_that_is_kept_stays_while_the_view_does_not_show_its_gang(tmp_path):
    async with staged(tmp_path) as old:
        put_job_set(old)
        async with next_leader(tmp_path, old, behind=PODS) as new:
            old.api.faults["patch /api/v1/namespaces/team-a/pods/first"].append(Held())
            old.queue("first", 2, of="js")
            await until(lambda: old.listed() == {"first", "first-follower-0"})
            await dies(old, patching=["first"])
            await until(lambda: [*new.world.gang_reservations.gangs()])
            new.lead()
            await rounds(new)
            assert new.listed() == {"first", "first-follower-0"}
            new.catch_up()
            await until(lambda: not new.is_gated("first"))
            await until(lambda: new.listed() == {"first-follower-0"})


async def test_a_charge_of_a_gang_stays_while_the_view_shows_its_other_pods_not_started_yet(tmp_path):
    async with staged(tmp_path) as old:
        held = Held()
        old.api.faults[f"post {TEAM_LEDGERS}"].append(held)
        for name in ("m0", "m1"):
            old.queue(name, 2, gang="g", size=2)
        await until(lambda: not old.api.faults[f"post {TEAM_LEDGERS}"])
        async with next_leader(tmp_path, old, behind=PODS, lists_later=True) as new:
            await until(lambda: len(new.world.waiting) == 2)
            old.api.faults["patch /api/v1/namespaces/team-a/pods/m1"].append(Held())
            held.go.set()
            await until(lambda: old.listed() == {"m1"})
            await dies(old, patching=["m1"])
            new.see_ledger()
            await new.feed.wait_synced()
            new.lead()
            await rounds(new)
            assert new.listed() == {"m1"}
            new.catch_up()
            await until(lambda: not new.is_gated("m1"))
            await until(lambda: not new.listed())


async def test_what_an_earlier_leader_took_back_is_not_released_by_a_view_of_the_ledger_that_is_behind(tmp_path):
    async with staged(tmp_path, limit=2) as old:
        held = await old.held_release()
        async with next_leader(tmp_path, old, behind=TEAM_LEDGERS, limit=2) as new:
            await until(lambda: [each.pod.name for each in new.ledger.charged(new.world.waiting)] == ["p"])
            now = old.pod()
            old.api.put(PODS, "p", namespace="team-a", **(now | {"spec": now["spec"] | {"nodeSelector": {"no": "x"}}}))
            held.go.set()
            await until(lambda: old.listed() == set())
            await old.die()
            old.hold("holder", 2)
            await until(lambda: new.world.usage(A).total)
            new.lead()
            await rounds(new)
            assert new.is_gated()
            assert new.listed() == set()


async def test_what_an_earlier_leader_charged_is_released_once_the_ledger_was_written_in_the_own_term(tmp_path):
    async with staged(tmp_path) as old:
        await old.held_release()
        await old.die()
        async with next_leader(tmp_path, old) as new:
            new.api.always["put"] = Answer(503)
            new.lead()
            await rounds(new, 2)
            assert (new.is_gated(), new.listed()) == (True, {"p"})
            new.api.always.clear()
            await until(lambda: not new.is_gated())
            assert new.world.usage(A).total == make.gpus(1)


async def test_a_charge_that_is_written_when_the_term_is_over_is_left_to_the_next_leader(tmp_path):
    async with staged(tmp_path) as old:
        held = Held()
        old.api.faults["post " + TEAM_LEDGERS].append(held)
        old.queue()
        await until(lambda: not old.api.faults["post " + TEAM_LEDGERS])
        await old.resign()
        held.go.set()
        await until(lambda: old.listed() == {"p"})
        await until(lambda: old.ledger._writer(A).is_idle)
        assert old.listed() == {"p"}, "the next leader may be removing the gate"
        async with next_leader(tmp_path, old) as new:
            new.lead()
            await until(lambda: not new.is_gated())
            await until(lambda: new.world.usage(A).total == make.gpus(1))


async def test_a_leader_whose_term_is_over_takes_nothing_back(tmp_path):
    async with staged(tmp_path) as old:
        held = await old.held_release()
        now = old.pod()
        old.api.put(PODS, "p", namespace="team-a", **(now | {"spec": now["spec"] | {"nodeSelector": {"no": "node"}}}))
        old.api.always["put"] = Answer(503)
        held.go.set()
        await until(lambda: old.ledger._writer(A).problem)
        await old.resign()
        old.api.always.clear()
        await until(lambda: old.ledger._writer(A).is_idle)
        assert old.listed() == {"p"}


async def test_a_term_that_ends_before_its_charges_begin_leaves_nothing_assumed(tmp_path, monkeypatch):
    async with staged(tmp_path, leads=False) as stage:
        stage.queue()
        await until(lambda: len(stage.world.waiting))
        due = AssumedStarts.due

        def ends(starts, **settings):
            found = due(starts, **settings)
            if found:
                stage.running.cancel()
            return found

        with monkeypatch.context() as patched:
            patched.setattr(AssumedStarts, "due", ends)
            stage.lead()
            await asyncio.gather(stage.running, return_exceptions=True)
        assert stage.world.usage(A).total == 0
        assert not stage.world.is_assumed(next(iter(stage.world.waiting.all())).uid)
        stage.lead()
        await until(lambda: not stage.is_gated())


async def test_after_a_bug_no_release_of_the_term_goes_on(tmp_path, monkeypatch):
    async with staged(tmp_path, leads=False) as stage:
        release_pod, held = start_loop.release_pod, asyncio.Event()
        ended = []

        async def release(connection, waiting, *args, **settings):
            if waiting.pod.name == "bug":
                raise ValueError("bug")
            try:
                await held.wait()
            except asyncio.CancelledError:
                ended.append(waiting.pod.name)
                raise
            return await release_pod(connection, waiting, *args, **settings)

        monkeypatch.setattr(start_loop, "release_pod", release)
        for name in ("p", "bug"):
            stage.queue(name)
        await until(lambda: len(stage.world.waiting) == 2)
        stage.lead()
        with pytest.raises((ExceptionGroup, ValueError)):
            await stage.running
        assert ended == ["p"]
        stage.running = None


async def test_a_gate_that_is_gone_keeps_the_charge_whatever_the_own_patch_was_answered(tmp_path):
    """A patch of the leader before arrives between the one that is refused and the write that takes the charge back."""
    async with staged(tmp_path) as stage:
        get, patch = (f"{verb} /api/v1/namespaces/team-a/pods/p" for verb in ("get", "patch"))
        taken_back = Held()
        stage.api.faults[get].append(taken_back)
        stage.api.faults[patch].append(Answer(403))
        stage.queue()
        await until(lambda: not stage.api.faults[get])
        now = stage.pod()
        metadata = now["metadata"] | {"labels": now["metadata"]["labels"] | {keys.TIER: "guaranteed"}}
        spec = now["spec"] | {"schedulingGates": []}
        stage.api.put(PODS, "p", namespace="team-a", **(now | {"metadata": metadata, "spec": spec}))
        taken_back.go.set()
        await until(lambda: stage.listed() == set())
        await stage.looks()
        assert stage.patches() == ["p"], "a pod that has started is not written to"
        assert stage.world.usage(A).total == make.gpus(1)


async def test_a_part_of_a_gang_is_taken_back_once_no_patch_can_still_start_it(tmp_path):
    async with staged(tmp_path, limit=3, guaranteed=3) as old:
        for name in ("m0", "m1"):
            old.api.faults[f"patch /api/v1/namespaces/team-a/pods/{name}"].append(Held())
            old.queue(name, 1, gang="g", size=2)
        await until(lambda: old.listed() == {"m0", "m1"})
        await dies(old, patching=["m0", "m1"])
        old.api.delete(PODS, "m0", namespace="team-a")
        versions = [old.pod("m1")["metadata"]["resourceVersion"]]
        async with next_leader(tmp_path, old, limit=3) as new:
            new.lead()
            await until(lambda: "m1" not in new.listed())
            versions.append(new.pod("m1")["metadata"]["resourceVersion"])
            assert len({*versions}) == 2, "what was judged before is out of date"
            new.queue("m2", 1, gang="g", size=2)
            await until(lambda: not (new.is_gated("m1") or new.is_gated("m2")))
