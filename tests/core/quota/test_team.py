"""The team of a namespace, and the user behind a pod."""

from dataclasses import replace

import pytest

from tests.core.support.make import ALICE, JOB, JOB_CONTROLLER, gpus, pod, policy, requirement, team, world
from tests.core.support.outcomes import admitted, codes
from webhook.core.admission.admission import admit
from webhook.core.model.amounts import Namespace
from webhook.core.model.constraints import Tier
from webhook.core.model.pod import NamespaceFacts, Requester
from webhook.core.model.policy import Defaults, LabelSelector, UnknownTeam, UnknownUser
from webhook.core.model.reasons import Code
from webhook.core.quota.shares import exempt_reason, is_exempt, is_exempt_by_default

ROBOTS = "system:serviceaccounts:team-a"


def robot(name, namespace="team-a"):
    return Requester(f"system:serviceaccount:{namespace}:{name}")


@pytest.mark.parametrize(
    ("requester", "owner", "annotations", "want"),
    [
        pytest.param(ALICE, None, {}, ALICE.username, id="a bare pod belongs to its requester"),
        pytest.param(ALICE, JOB, {}, ALICE.username, id="a person cannot hide behind a forged owner"),
        pytest.param(JOB_CONTROLLER, JOB, {"owner": "bob"}, "bob", id="a controller's pod to the profile's owner"),
        pytest.param(JOB_CONTROLLER, JOB, {}, None, id="no user named: unknown, never guessed"),
        pytest.param(robot("one"), None, {}, ROBOTS, id="all service accounts of a namespace are one user"),
        pytest.param(robot("two"), JOB, {}, ROBOTS, id="whatever owner they forge"),
        pytest.param(robot("one"), None, {"owner": "bob"}, "bob", id="or their namespace's owner"),
        pytest.param(robot("one", "ops"), None, {}, "system:serviceaccounts:ops", id="also those of no team"),
        pytest.param(Requester("x" * 1_000), None, {}, "x" * 253, id="a name is only so long"),
        pytest.param(JOB_CONTROLLER, JOB, {"owner": "x" * 1_000}, "x" * 253, id="from any source"),
    ],
)
def test_the_user_behind_a_pod(requester, owner, annotations, want):
    place = world(policy(team(per_user=gpus(5))))
    place.set_namespace(NamespaceFacts(Namespace("team-a"), {}, annotations))
    decision = admitted(admit(pod(1, owner=owner), requester, place))
    assert decision.charge.user == want
    assert [warning.code for warning in decision.warnings] == ([Code.UNKNOWN_USER] if want is None else [])


def test_a_namespace_without_a_team_is_refused_or_borrows():
    unowned = pod(1, namespace="elsewhere")
    assert codes(admit(unowned, ALICE, world())) == [Code.UNKNOWN_TEAM]
    lenient = policy(defaults=Defaults(unknown_team=UnknownTeam.PREEMPTIBLE))
    decision = admitted(admit(unowned, ALICE, world(lenient)))
    assert (decision.charge.team, decision.charge.tier) == ("unassigned", Tier.PREEMPTIBLE)


@pytest.mark.parametrize(
    ("namespace", "want"),
    [("vision", "exact"), ("vision-eu", "glob"), ("labelled", "selected")],
)
def test_an_exact_name_beats_a_glob_and_a_glob_a_selector(namespace, want):

    selector = LabelSelector((requirement("team", "In", "x"),))
    teams = (
        team("selected", namespaces=(), namespace_selector=selector),
        team("glob", namespaces=("vision*",)),
        team("exact", namespaces=("vision",)),
    )
    place = world(policy(*teams))
    place.set_namespace(NamespaceFacts(Namespace(namespace), {"team": "x"}))
    assert admitted(admit(pod(1, namespace=namespace), ALICE, place)).charge.team == want


def test_a_service_account_counts_as_the_owner_of_its_own_namespace():
    place = world(policy(team(per_user=gpus(5), namespaces=("team-a", "team-a2"))))
    place.set_namespace(NamespaceFacts(Namespace("team-a"), {}, {"owner": "ann"}))
    place.set_namespace(NamespaceFacts(Namespace("team-a2"), {}, {"owner": "bob"}))
    assert admitted(admit(pod(1), robot("one", "team-a2"), place)).charge.user == "bob"


def test_pods_without_a_user_may_count_by_namespace():
    by_namespace = policy(team(per_user=gpus(5)), defaults=Defaults(unknown_user=UnknownUser.NAMESPACE))
    decision = admitted(admit(pod(1, owner=JOB), JOB_CONTROLLER, world(by_namespace)))
    assert (decision.charge.user, decision.warnings) == (ROBOTS, ())


@pytest.mark.parametrize(
    ("labels", "exempt", "want"),
    [({}, (), True), ({"fairgate.dev/exempt": "true"}, (), False), ({}, ("gpu-*",), False)],
    ids=["nothing else does", "its label does", "policy does"],
)
def test_whether_only_a_default_exempts_an_operators_namespace(labels, exempt, want):
    facts = NamespaceFacts(Namespace("gpu-operator"), labels)
    shares = replace(policy(), exempt_namespaces=exempt)
    assert is_exempt(facts, shares)
    assert is_exempt_by_default(facts, shares) is want
    assert ("by default" in exempt_reason(facts, shares).text) is want
    assert not is_exempt_by_default(facts, replace(shares, operator_namespaces=()))
