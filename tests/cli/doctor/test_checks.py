"""Each check, on an installation with one problem: that is reported with a remedy, and nothing else."""

from copy import deepcopy
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.cli.doctor import stage
from tests.cli.doctor.stage import HEALTHY, ISSUER, POLICY, findings, process, replicas
from webhook.cli.doctor.checks import Check, State, check_ledger, exit_status
from webhook.cluster.reads.installation import LeaseState, ProductsFound, ReadForbidden, ReadValue
from webhook.core.model.policy import Share
from webhook.kube.objects.keys import SERVER_LEASE, ServerVersion


def registered(**changes):
    """The validating configuration with another value in each webhook."""
    found = deepcopy(stage.configurations())
    for webhook in found["fairgate"].value["webhooks"]:
        webhook.update(changes)
    return {"configurations": found}


def trusting(pem):
    found = deepcopy(stage.configurations())
    for part in found.values():
        for webhook in part.value["webhooks"]:
            webhook["clientConfig"]["caBundle"] = stage.bundle(pem)
    return {"configurations": found}


def without_guard(kind, name):
    return {"guards": stage.guard_objects() | {(kind, name): ReadValue(None)}}


def other_guard():
    found = deepcopy(stage.guard_objects())
    found["ValidatingAdmissionPolicy", "fairgate-labels"].value["spec"]["matchConditions"] = []
    return {"guards": found}


def deployment(available):
    return {
        "metadata": {"name": "fairgate"},
        "spec": {"replicas": 2},
        "status": {"availableReplicas": available} if available else {},
    }


def serving(leaf):
    return replicas(**{"pod-1_a": process(leading=True, certificate=leaf)})


def held(*holders, age=1.0, **more):
    """The Leases of servers that these hold, each in a namespace of its own."""
    leases = [LeaseState(SERVER_LEASE, f"n{n}", each, age, **more) for n, each in enumerate(holders)]
    return {"leases": ReadValue(leases)}


NONE = dict.fromkeys(("pod-1_a", "pod-2_b"))
NO_EVICTORS = dict.fromkeys(("pod-1_c", "pod-2_d"))
BROKEN = {
    "a version that is too old": (
        {"version": ServerVersion(1, 29, "v1.29.3")},
        {"kubernetes"},
        "the API server is Kubernetes 1.29 (v1.29.3); Fairgate needs Kubernetes 1.30 or newer",
    ),
    "no server": (replicas(**NONE), {"server", "leader", "certificates"}, "no server reports"),
    "a server that is not ready": (
        replicas(**{"pod-2_b": process(not_ready=["world: pods: nothing heard for 130 s"])}),
        {"server"},
        "pod-2_b is not ready: world: pods",
    ),
    "a server that stopped reporting": (
        replicas(**{"pod-2_b": process(age=60)}),
        {"server"},
        "pod-2_b has not reported for 60 s",
    ),
    "a report without a time": (replicas(**{"pod-2_b": process(at="soon")}), {"server"}, "pod-2_b has not reported"),
    "a server without the right to register": (
        replicas(**{"pod-1_a": process(leading=True, registration="cannot update: 403")}),
        {"server"},
        "the registration does not match the policy: cannot update: 403",
    ),
    "too few replicas": (
        {"deployments": ReadValue([deployment(1)])},
        {"server"},
        "Deployment fairgate: 1 of 2 replicas",
    ),
    "no server leads": (replicas(**{"pod-1_a": process()}), {"leader"}, "no server leads"),
    "two leaders": (
        replicas(**{"pod-2_b": process(leading=True)}),
        {"leader"},
        "more than one reported to lead: pod-1_a (3 s ago), pod-2_b (3 s ago)",
    ),
    "two leaders, by two Leases": (
        {**replicas(**{"pod-2_b": process(leading=True)}), **held("pod-1_a", "pod-2_b")},
        {"leader"},
        "more than one leads: pod-1_a by the Lease in namespace n0, pod-2_b by the Lease in namespace n1",
    ),
    "a leader that was killed, and another one leads": (
        {**replicas(**{"pod-1_a": process(leading=True, age=20), "pod-2_b": process(leading=True)}), **held("pod-2_b")},
        {"leader"},
        "pod-1_a reported 20 s ago that it leads, and pod-2_b leads now: it was killed",
    ),
    "a leader that was killed a moment ago": (
        held("pod-1_a", age=5.0, is_stuck=True),
        {"leader"},
        "pod-1_a leads, and renewed its Lease 5 s ago: it was killed, hangs",
    ),
    "a server that cannot write its history": (
        replicas(**{"pod-1_a": process(leading=True, history="/var/lib/fairgate: no space left on device")}),
        {"server"},
        "pod-1_a records no usage on disk: /var/lib/fairgate: no space left on device",
    ),
    "a server that cannot take part in the election": (
        replicas(**{"pod-2_b": process(election="cannot get leases: 403")}),
        {"leader"},
        "pod-2_b cannot take part in the election: cannot get leases: 403",
    ),
    "no evictor": (replicas(**NO_EVICTORS), {"evictor"}, "no evictor reports"),
    "no evictor leads": (replicas(**{"pod-1_c": process("evictor")}), {"evictor"}, "no evictor leads"),
    "an evictor that is not ready": (
        replicas(**{"pod-1_c": process("evictor", leading=True, not_ready=["world: silent"])}),
        {"evictor"},
        "pod-1_c is not ready",
    ),
    "a borrower that cannot be evicted": (
        replicas(**{"pod-1_c": process("evictor", leading=True, unevictable=["vision/a: cannot delete pods: 500"])}),
        {"evictor"},
        "a borrowing pod cannot be evicted: vision/a: cannot delete pods: 500",
    ),
    "a pod that does not use the room that is made for it": (
        replicas(
            **{"pod-1_c": process("evictor", leading=True, unserved=["nlp/b: 1 node(s) exceed max volume count"])}
        ),
        {"evictor"},
        "GPUs were freed for a waiting pod, which did not start: nlp/b: 1 node(s) exceed max volume count",
    ),
    "an evictor that may not plan moves": (
        replicas(**{"pod-1_c": process("evictor", leading=True, moving="cannot patch reports: 403")}),
        {"evictor"},
        "pod-1_c moves no pods: cannot patch reports: 403",
    ),
    "an evictor that cannot read utilization": (
        replicas(**{"pod-1_c": process("evictor", leading=True, idle_problem="http://p:9090: it answered 403")}),
        {"idle"},
        "the use of GPUs is not known: http://p:9090: it answered 403",
    ),
    "no policy published": ({"policy": ReadValue(None)}, {"policy"}, "no policy is published"),
    "a policy too large to publish": (
        {"policy": ReadValue(stage.report(omitted="the policy has 2,000,000 bytes"))},
        {"policy"},
        "2,000,000 bytes",
    ),
    "no room published": ({"room": ReadValue(None)}, {"room"}, "users who may not list nodes see none"),
    "a room of an older time": (
        {"room": ReadValue(stage.room(age=200))},
        {"room"},
        "free GPUs were last published 200 s ago",
    ),
    "a room too large to publish": (
        {"room": ReadValue(stage.room(omitted="the line: it is long"))},
        {"room"},
        "omits the line: it is long",
    ),
    "another policy in one process": (
        replicas(**{"pod-2_d": process("evictor", policy="0123")}),
        {"policy"},
        "pod-2_d has policy 0123 (enforce) in force",
    ),
    "another enforcement in one process": (
        replicas(**{"pod-2_b": process(enforce="warn")}),
        {"policy"},
        "(warn) in force",
    ),
    "an invalid edit": (
        replicas(**{"pod-2_b": process(policy_problem="a.yaml:3: teams: what")}),
        {"policy"},
        "rejected an invalid edit: a.yaml:3",
    ),
    "an expired certificate": (
        serving(ISSUER.leaf(age=timedelta(days=100))),
        {"certificates"},
        "certificate of pod-1_a expired",
    ),
    "a certificate that is not renewed": (
        serving(ISSUER.leaf(age=timedelta(days=80))),
        {"certificates"},
        "was not renewed and expires at",
    ),
    "a certificate for another host": (
        serving(ISSUER.leaf("example.org")),
        {"certificates"},
        "is not valid for fairgate.fairgate-system.svc",
    ),
    "a caBundle of another CA": (
        trusting(stage.Issuer().pem),
        {"certificates"},
        "no CA that issued the certificate",
    ),
    "an empty caBundle": (trusting(b"\n"), {"certificates"}, "caBundle is empty"),
    "an invalid caBundle": (trusting(b"what"), {"certificates"}, "caBundle cannot be read"),
    "no webhooks": (
        {"configurations": stage.configurations() | {"fairgate": ReadValue(None)}},
        {"webhooks"},
        "ValidatingWebhookConfiguration fairgate is missing",
    ),
    "a webhook that ignores failures": (registered(failurePolicy="Ignore"), {"webhooks"}, "has failurePolicy Ignore"),
    "a webhook that selects too few pods": (
        registered(matchConditions=[]),
        {"webhooks"},
        "does not select the policy's",
    ),
    "no guards": (
        {"guards": {key: ReadValue(None) for key in stage.guard_objects()}},
        {"guards"},
        "no guard is installed",
    ),
    "a guard that is missing": (
        without_guard("ValidatingAdmissionPolicyBinding", "fairgate-grace"),
        {"guards"},
        "ValidatingAdmissionPolicyBinding fairgate-grace is missing",
    ),
    "a guard of another version": (
        other_guard(),
        {"guards"},
        "fairgate-labels differs from what this version generates",
    ),
    "a team without a ledger": ({"ledgers": ReadValue([])}, {"ledger"}, "team vision has no TeamLedger"),
    "a server that is behind": (
        replicas(**{"pod-2_b": process(behind=["team vision: 40 resourceVersions behind"])}),
        {"ledger"},
        "pod-2_b is behind: team vision: 40",
    ),
}


def test_a_healthy_installation_is_healthy():
    found = findings()
    assert {each.state for each in found} == {State.OK}, found
    assert [each.check for each in found] == list(Check)
    assert exit_status(found) == 0


@pytest.mark.parametrize("name", BROKEN)
def test_each_problem_is_reported_with_a_remedy_and_nothing_else_is(name):
    changed, want, words = BROKEN[name]
    found = findings(**changed)
    wrong = [each for each in found if each.state is State.WRONG]
    assert {each.check.value for each in found if each.state is not State.OK} == want
    assert any(words in each.message for each in wrong), wrong
    assert all(each.remedy for each in wrong)
    assert exit_status(found) == 1


def test_a_process_replaced_by_another_in_its_pod_is_not_missed():
    assert exit_status(findings(**replicas(**{"pod-2_old": process(age=200)}))) == 0


def test_an_evictor_is_not_missed_if_no_team_has_a_share():
    lenders = replace(POLICY, teams=tuple(replace(team, gpus=Share()) for team in POLICY.teams))
    [found] = [
        each
        for each in findings(replace(HEALTHY, policy=lenders), **replicas(**NO_EVICTORS))
        if each.check is Check.EVICTOR
    ]
    assert found.state is State.SKIPPED


def test_a_missing_right_makes_a_check_unknown_and_is_named():
    secret = ReadForbidden("get something")
    found = findings(
        replace(HEALTHY, policy=None, probe=None),
        replicas=secret,
        policy=secret,
        room=secret,
        configurations=dict.fromkeys(stage.configurations(), secret),
        guards=dict.fromkeys(stage.guard_objects(), secret),
        ledgers=secret,
        deployments=secret,
        large_pods=secret,
        version=None,
    )
    unknown = [each for each in found if each.check not in {Check.PODS, Check.COEXISTENCE}]
    assert {each.state for each in unknown} == {State.UNKNOWN}
    assert {each.check for each in unknown} == set(Check) - {Check.PODS, Check.COEXISTENCE}
    assert all(each.remedy for each in unknown)
    assert exit_status(found) == 2


def test_unreadable_deployments_are_not_a_problem():
    [found] = [each for each in findings(deployments=ReadForbidden("list deployments")) if each.check is Check.SERVER]
    assert found.state is State.OK
    assert "list deployments" in found.message


def test_pods_that_are_too_large_to_be_evicted_are_named():
    [fine] = [each for each in findings() if each.check is Check.PODS]
    assert (fine.state, fine.message) == (State.OK, "none is too large to be evicted")
    large = [
        each
        for each in findings(large_pods=ReadValue([f"vision/p-{n}" for n in range(12)]))
        if each.check is Check.PODS
    ]
    assert {each.state for each in large} == {State.WRONG}
    assert (
        large[0].message == "pod vision/p-0 has more than 1,310,720 bytes: it may be too large to be evicted or deleted"
    )
    assert large[-1].message == "2 more pods are as large"
    [hidden] = [each for each in findings(large_pods=ReadForbidden("list pods")) if each.check is Check.PODS]
    assert hidden.state is State.SKIPPED
    assert hidden.message == "for admins: you lack the right to list pods of all namespaces"


def test_another_queue_is_named_and_is_no_problem():
    found = findings(others=ProductsFound(("Kueue",)))
    assert found[-1].message == "Kueue is installed: docs/tasks/coexistence.md#kueue"
    assert exit_status(found) == 0


def test_charged_pods_that_keep_their_gate_are_named():
    entries = [{"ns": "vision", "name": "waits", "reclaims": True}, {"ns": "vision", "name": "comes"}]
    ledger = {"status": {"team": "vision"}, "ledger": {"inFlight": entries}}
    [found] = check_ledger([], ReadValue([ledger]), POLICY)
    assert (found.check, found.state) == (Check.LEDGER, State.OK)
    assert found.message.endswith("; 1 charged pod queued until borrowers leave: vision/waits")
