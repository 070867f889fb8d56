"""The leader's tasks against an API server over real HTTP: one patch and one Event for each pod whose tier changes."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from tests import builders
from tests.cluster.support.fake_api import Answer, Body, FakeApi, Slow
from tests.cluster.support.stores import FAST, unexpected, write_kubeconfig
from tests.core.support import make
from tests.server.support.harness import until
from webhook.cluster.api.client import connect
from webhook.cluster.ledger.ledger import ApiLedger
from webhook.cluster.watch.feed import Feed
from webhook.cluster.writes.lease import Timing
from webhook.core.model.amounts import TeamName, Uid
from webhook.core.model.constraints import Tier
from webhook.core.model.decision import Charge
from webhook.core.model.policy import Enforcement
from webhook.core.quota.charges import InFlightCharge
from webhook.core.tiers.shadow_labels import ShadowLabels
from webhook.core.tiers.tier_changes import promotion, tier_changes
from webhook.kube.objects import keys
from webhook.kube.pod.existing import to_resident
from webhook.kube.registration.registration import webhook_configurations
from webhook.kube.watched import world_kinds
from webhook.kube.watched.kinds import pod_kind
from webhook.observe.logs import LogFormat, open_logs
from webhook.observe.metrics import Metrics
from webhook.server.leader import leader as leaders
from webhook.server.leader.leader import Leader

PODS, EVENTS, NAMESPACES = "/api/v1/pods", "/api/v1/events", "/api/v1/namespaces"
GET_POD = "get /api/v1/namespaces/team-a/pods/p"
GET_WEBHOOKS = "get /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/zz-fairgate"
TEAM_LEDGERS = "/apis/fairgate.dev/v1alpha1/teamledgers"
A = TeamName("team-a")
QUICK = Timing(lease=1, renew_deadline=0.5, retry=0.05, jitter=0.1, release=0.2)


@dataclass
class Stage:
    """A fake cluster, a world that follows it, and a leader."""

    api: FakeApi
    world: object
    leader: Leader
    ledger: ApiLedger
    shadow_labels: ShadowLabels
    why_stale: str | None = None

    def put(self, name, tier, count=1, *, created=0, asked=None, **metadata):
        labels = {keys.TIER: tier, keys.TEAM: "team-a"} if tier else {}
        mark = {"gpus": str(count), "code": "Borrows", "policy": "p1", "at": "then"} | (
            {"asked": asked} if asked else {}
        )
        made = builders.pod(
            name, namespace="team-a", gpus=count, labels=labels, annotations={keys.DECISION: json.dumps(mark)}
        )
        meta = made.pop("metadata") | {"creationTimestamp": f"2026-01-01T00:00:{created:02}Z"} | metadata
        if tier is None:
            del meta["annotations"]
        return self.api.put(PODS, name, namespace="team-a", metadata=meta, **made)["metadata"]["uid"]

    def labels(self):
        return {o["metadata"]["name"]: o["metadata"]["labels"].get(keys.TIER) for o in self.api.objects[PODS].values()}

    def events(self):
        return sorted((e["reason"], e["involvedObject"]["name"]) for e in self.api.objects[EVENTS].values())

    async def rest(self):
        """Let the leader reconcile once more, to show that there is nothing left to do."""
        self.world.on_usage_changed()
        await asyncio.sleep(0.1)


@asynccontextmanager
async def staged(folder, *, guaranteed=4, more_tasks=()):
    async with FakeApi().serving() as api, await connect(write_kubeconfig(folder / "k", api.url)) as connection:
        world = make.world(make.policy(make.team(guaranteed=guaranteed, limit_=None)), nodes=[])
        api.put(NAMESPACES, "team-a")
        counts = Metrics().watch_ledger(list, teams=list)
        ledger = ApiLedger(
            connection,
            world,
            reached=lambda: feed.watches[-1].reached,
            recorder=counts,
            known={}.get,
            on_restored=unexpected,
        )
        weights, shadow_labels = world.policy.resources, ShadowLabels(world)
        kinds = (
            world_kinds.NAMESPACES.watched(world),
            ledger.kind(),
            pod_kind(shadow_labels, lambda pod: to_resident(pod, weights)),
        )
        feed = Feed(connection, kinds, pace=FAST)
        with (folder / "log").open("wb") as log:
            logs = open_logs(LogFormat.JSON, fd=log.fileno())
            stage = Stage(api, world, None, ledger, shadow_labels)
            stage.leader = leader = Leader(
                connection,
                world,
                logs,
                namespace="fairgate",
                ledger=ledger,
                shadow_labels=shadow_labels,
                why_stale=lambda: stage.why_stale or feed.why_not_synced(),
                why_not_serving=lambda: None,
                timing=QUICK,
            )
            leader.add(dict(more_tasks))
            background = (
                feed.run(),
                leader.run(),
                leader.events.run(),
                ledger.reconcile(is_leader=leader.should_clean_up),
            )
            tasks = [asyncio.create_task(task) for task in background]
            try:
                await feed.wait_synced()
                yield stage
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await ledger.close()


def in_flight(stage):
    """The UIDs that the team's object lists, and the tiers they are charged as."""
    found = stage.api.objects[TEAM_LEDGERS].get("/team-a", {"ledger": {"inFlight": []}})
    return {entry["uid"]: entry["tier"] for entry in found["ledger"]["inFlight"]}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(leaders, "SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(leaders, "RESYNC_SECONDS", 0.1)
    monkeypatch.setattr("webhook.server.leader.tiers.REST_SECONDS", 0.2)


def lines(folder, event):
    return [line for raw in (folder / "log").read_text().splitlines() if (line := json.loads(raw))["event"] == event]


async def test_when_a_guaranteed_pod_ends_the_oldest_preemptible_one_is_promoted(tmp_path):
    async with staged(tmp_path) as stage:
        stage.put("k", "guaranteed", 4)
        stage.put("young", "preemptible", 2, created=9)
        stage.put("old", "preemptible", 3, created=3)
        await until(lambda: len(stage.world.usage(A)) == 3)
        await stage.rest()
        assert stage.api.count("patch") - renewals(stage) == 0
        stage.api.delete(PODS, "k", namespace="team-a")
        await until(lambda: stage.labels()["old"] == "guaranteed")
        await until(stage.events)
        await stage.rest()
        assert stage.labels() == {"old": "guaranteed", "young": "preemptible"}
        assert stage.events() == [("Promoted", "old")]
        assert patches(stage) == ["old"]
        mark = json.loads(stage.api.objects[PODS]["team-a/old"]["metadata"]["annotations"][keys.DECISION])
        assert mark == {"gpus": "3", "code": "WithinShare", "policy": "p1", "at": "then"}
        assert stage.leader.tiers.changes == {(A, Tier.GUARANTEED): 1}
        await until(lambda: in_flight(stage) == {})
    assert [line["name"] for line in lines(tmp_path, "tier changed")] == ["old"]


def patches(stage):
    return [
        asked.path.rpartition("/")[2] for asked in stage.api.asked if asked.verb == "patch" and "/pods/" in asked.path
    ]


def renewals(stage):
    return sum(asked.verb == "patch" and "/leases/" in asked.path for asked in stage.api.asked)


async def test_a_task_with_a_bug_starts_again_and_leaves_the_others_and_the_lead_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(leaders, "RESTART_SECONDS", 0.05)
    starts = 0

    async def fail():
        nonlocal starts
        starts += 1
        raise KeyError("an object that was not expected")

    async with staged(tmp_path, more_tasks={"broken": fail}) as stage:
        await until(lambda: starts > 2)
        stage.put("p", "preemptible")
        await until(lambda: stage.labels()["p"] == "guaranteed")
        assert stage.leader.lease.terms == 1
        assert stage.leader.task_failures["broken"] > 1
        assert {task for task, count in stage.leader.task_failures.items() if count} == {"broken"}
    bugs = lines(tmp_path, "bug")
    assert {line["task"] for line in bugs} == {"broken"}
    assert "an object that was not expected" in bugs[0]["traceback"]


async def test_every_patch_has_a_field_manager(tmp_path):
    async with staged(tmp_path) as stage:
        stage.put("p", "preemptible")
        await until(lambda: stage.labels()["p"] == "guaranteed")
        (asked,) = [asked for asked in stage.api.asked if "/pods/" in asked.path and asked.verb == "patch"]
        assert asked.query == {"fieldManager": "fairgate"}


async def test_a_lowered_share_demotes_the_newest_with_a_warning(tmp_path):
    async with staged(tmp_path) as stage:
        for number in range(4):
            stage.put(f"p{number}", "guaranteed", created=number)
        await until(lambda: len(stage.world.usage(A)) == 4)
        stage.world.set_policy(make.policy(make.team(guaranteed=2, limit_=None), hash="p2"))
        await until(lambda: len(stage.events()) == 2)
        await stage.rest()
        assert stage.labels() == dict.fromkeys(["p0", "p1"], "guaranteed") | dict.fromkeys(["p2", "p3"], "preemptible")
        assert stage.events() == [("Demoted", "p2"), ("Demoted", "p3")]
        assert {e["type"] for e in stage.api.objects[EVENTS].values()} == {"Warning"}
        assert sorted(patches(stage)) == ["p2", "p3"]


async def test_a_promotion_is_charged_before_the_label_is_written(tmp_path):
    async with staged(tmp_path) as stage:
        stage.api.always["get"] = Slow(30)
        uid = Uid(stage.put("p", "preemptible", 4))
        await until(lambda: in_flight(stage) == {uid: "guaranteed"})
        assert stage.world.usage(A).guaranteed == make.gpus(4)
        assert stage.labels()["p"] == "preemptible"


async def test_a_promotion_whose_patch_fails_is_withdrawn_and_retried(tmp_path):
    async with staged(tmp_path) as stage:
        stage.api.always["patch"] = Answer(403)
        uid = Uid(stage.put("p", "preemptible", 2))
        await until(lambda: lines(tmp_path, "tier not changed"))
        await until(lambda: stage.world.charge_of(uid).tier is Tier.PREEMPTIBLE)
        assert in_flight(stage) == {}
        del stage.api.always["patch"]
        await until(lambda: stage.labels()["p"] == "guaranteed")
    assert "RBAC must grant this user the verb patch on pods" in lines(tmp_path, "tier not changed")[0]["why"]


async def test_a_promotion_without_a_response_stays_charged_until_it_is_known(tmp_path):
    async with staged(tmp_path) as stage:
        stage.why_stale = "not yet"
        uid = Uid(stage.put("p", "preemptible", 2))
        await until(lambda: stage.world.pod(uid))
        stage.api.faults[GET_POD].append(Body(b"not a pod"))
        stage.why_stale = None
        await until(lambda: lines(tmp_path, "tier not changed"))
        assert in_flight(stage) == {uid: "guaranteed"}
        await until(lambda: stage.labels()["p"] == "guaranteed")
        await until(lambda: in_flight(stage) == {})


async def test_a_promotion_that_an_earlier_leader_charged_is_finished(tmp_path):
    async with staged(tmp_path) as stage:
        stage.why_stale = "not yet"
        uid = Uid(stage.put("p", "preemptible", 2))
        await until(lambda: stage.world.pod(uid))
        (change,) = tier_changes(stage.world.policy.teams[0], stage.world)
        await stage.ledger.commit(
            lambda: promotion(change, stage.world),
            deadline=asyncio.get_running_loop().time() + 5,
            is_gone=lambda: False,
        )
        assert in_flight(stage) == {uid: "guaranteed"}
        stage.put("k", "guaranteed", 2)
        stage.why_stale = None
        await until(lambda: stage.labels()["p"] == "guaranteed")
        await until(stage.events)
        assert stage.events() == [("Promoted", "p")]
        await until(lambda: in_flight(stage) == {})


async def test_a_write_without_a_response_is_found_done(tmp_path):
    """The label was written, the response lost: the next reconciliation finds it, and nothing is patched twice."""
    async with staged(tmp_path) as stage:
        stage.why_stale = "not yet"
        uid = stage.put("p", "preemptible", 2)
        await until(lambda: stage.world.pod(Uid(uid)))
        stage.api.objects[PODS]["team-a/p"]["metadata"]["labels"][keys.TIER] = "guaranteed"  # and no event of it yet
        stage.why_stale = None
        await until(stage.events)
        assert stage.events() == [("Promoted", "p")]
        assert patches(stage) == []


async def test_another_pod_of_the_same_name_is_left_alone(tmp_path):
    async with staged(tmp_path) as stage:
        stage.why_stale = "not yet"
        uid = stage.put("p", "preemptible", 2)
        await until(lambda: stage.world.pod(Uid(uid)))
        stage.api.objects[PODS]["team-a/p"]["metadata"]["uid"] = "another"
        stage.why_stale = None
        await until(lambda: any(asked.path.endswith("/pods/p") for asked in stage.api.asked))
        await stage.rest()
        assert patches(stage) == []
        await until(lambda: in_flight(stage) == {})


async def test_nothing_is_written_while_the_world_is_stale(tmp_path):
    async with staged(tmp_path) as stage:
        stage.why_stale = "pods: no event from the API server for 121 s"
        stage.put("p", "preemptible", 2)
        stage.put("past", None, 1)
        await until(lambda: len(stage.world.usage(A)) == 2)
        await stage.rest()
        assert stage.labels()["p"] == "preemptible"
        assert stage.events() == []


AGENT = {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}]}


async def test_pods_that_bypassed_the_webhook_are_adopted_by_age(tmp_path):
    async with staged(tmp_path) as stage:
        stage.put("young", None, 3, created=9)
        stage.put("old", None, 3, created=1)
        stage.put("agent", None, 1, **AGENT)
        await until(lambda: sum(reason == "Adopted" for reason, _ in stage.events()) == 2)
        await stage.rest()
        assert stage.labels() == {"young": "preemptible", "old": "guaranteed", "agent": None}
        assert sorted(patches(stage)) == ["old", "young"]
        assert stage.world.usage(A).guaranteed == make.gpus(4)
    assert {line["tier"] for line in lines(tmp_path, "pod adopted")} == {"guaranteed", "preemptible"}


async def test_while_the_policy_is_not_enforced_nothing_is_written(tmp_path):
    async with staged(tmp_path) as stage:
        stage.why_stale = "not yet"
        shadow = replace(stage.world.policy, enforce=Enforcement.SHADOW)
        stage.world.set_policy(shadow)
        stage.put("young", None, 3, created=9)
        stage.put("old", None, 3, created=1)
        stage.put("labelled", "preemptible", 1)
        await until(lambda: len(stage.world.usage(A)) == 3)
        stage.why_stale = None
        await stage.rest()
        await until(lambda: stage.world.usage(A).guaranteed == make.gpus(3))
        assert (patches(stage), stage.events()) == ([], [])
        stage.world.set_policy(replace(shadow, enforce=Enforcement.ENFORCE))
        stage.shadow_labels.relabel_all()
        await until(lambda: stage.labels() == {"young": "preemptible", "old": "guaranteed", "labelled": "guaranteed"})
        assert "BypassedAdmission" not in {reason for reason, _ in stage.events()}


async def test_a_pod_that_bypassed_the_webhook_is_reported_once(tmp_path):
    async with staged(tmp_path) as stage:
        stage.put("past", None, 2, **AGENT)
        await until(stage.events)
        stage.put("past", None, 2, labels={"changed": "since"}, **AGENT)
        await stage.rest()
        assert stage.events() == [("BypassedAdmission", "past")]
        (event,) = stage.api.objects[EVENTS].values()
        assert (event["type"], event["count"]) == ("Warning", 1)
        assert event["message"].startswith(
            "holds 2 GPUs without a decision of Fairgate; they are charged to team team-a"
        )


async def test_a_pod_in_the_ledger_did_not_bypass_the_webhook(tmp_path):
    async with staged(tmp_path) as stage:
        stage.why_stale = "not yet"
        uid = Uid(stage.put("agent", None, 2))
        await until(lambda: stage.world.pod(uid))
        charge = Charge(A, Tier.PREEMPTIBLE, make.gpus(2))
        stage.world.assume(InFlightCharge(stage.world.pod(uid), charge, None))
        stage.why_stale = None
        await stage.rest()
        assert stage.events() == []


async def test_pods_of_exempt_namespaces_are_not_reported(tmp_path):
    async with staged(tmp_path) as stage:
        stage.api.put(NAMESPACES, "team-a", metadata={"labels": {keys.EXEMPT: "true"}})
        await until(lambda: stage.world.tenancy("team-a").is_exempt)
        stage.put("past", None, 2)
        await until(lambda: len(stage.world.usage(A)) == 1)
        await stage.rest()
        assert stage.events() == []


async def test_a_missing_right_on_webhook_configurations_is_a_problem_until_it_is_granted(tmp_path, monkeypatch):
    monkeypatch.setattr("webhook.server.leader.registration_loop.SYNC_SECONDS", 0.02)
    async with staged(tmp_path) as stage:
        for made in webhook_configurations(make.policy(), ca_bundle_pem=b"ca", url="https://fairgate.test"):
            name = made["metadata"]["name"]
            path = f"/apis/admissionregistration.k8s.io/v1/{made['kind'].lower()}s"
            stage.api.put(path, name, metadata={"name": name}, webhooks=made["webhooks"])
        await until(lambda: stage.leader.lease.is_leading)
        await until(stage.leader.is_registration_in_step)
        stage.api.faults[GET_WEBHOOKS].extend([Answer(403)] * 5)
        await until(lambda: not stage.leader.is_registration_in_step())
        await until(stage.leader.is_registration_in_step)
