"""Patches of pods that wait in line, and of those that are released, as kube-apiserver would take them."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonpatch import JsonPatchException

from tests import builders as b
from tests.cluster.support.fake_writes import without_absent
from tests.core.support.make import ALICE, policy, resident, team, world
from tests.examples import examples
from tests.kube.conftest import admit_of
from tests.kube.support.patching import NOW, PODS, REQUIRED, expression, named, terms_of
from webhook.core.admission.admission import admit
from webhook.core.admission.node_choice import in_domain
from webhook.core.admission.verification import verify
from webhook.core.model.constraints import DomainPlace, Operator, Requirement
from webhook.core.model.decision import Deny, NodeChoice, NotApplicable, Queue
from webhook.core.model.policy import BUILT_IN_RESOURCES, Mode, OnLimit
from webhook.kube.admission.pod_patch import apply, line_operations, operations, queue_operations, release_operations
from webhook.kube.objects import keys
from webhook.kube.pod.pods import to_pod
from webhook.kube.pod.waiting import to_waiting

FOREIGN = "example.com/gate"
ODD = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)


def full_world():
    return world(policy(team(guaranteed=4, limit_=4, on_limit=OnLimit.QUEUE)), residents=[resident(4, node="n0")])


def core(manifest):
    return to_pod(PODS.decode(json.dumps(manifest)), namespace="team-a", weights=BUILT_IN_RESOURCES, uid="u1")


def queued(manifest, place):
    decision = admit(core(manifest), ALICE, place)
    assert isinstance(decision, Queue)
    return apply(manifest, queue_operations(PODS.decode(json.dumps(manifest)), decision, now_text=NOW))


def released(manifest, node_choice=None):
    choice = node_choice or NodeChoice(Mode.AUTO, ("n1", "n2"))
    patch = release_operations(PODS.decode(json.dumps(manifest)), admit_of(choice), now_text=NOW)
    return apply(manifest, without_absent(manifest, patch))


def test_what_fairgate_writes_later_is_removed_from_a_pod_that_is_created_with_it():
    forged = dict.fromkeys(keys.WRITTEN_LATER, "forged") | {"mine": "kept"}
    made = b.pod("p", namespace="team-a", gpus=1, uid="u1", annotations=forged)
    found = queued(made, full_world())["metadata"]["annotations"]
    assert (found["mine"], "forged" in found.values()) == ("kept", False)
    admitted = admit_of(NodeChoice(Mode.AUTO, ("n1",)))
    written = apply(made, operations(PODS.decode(json.dumps(made)), admitted, now_text=NOW))["metadata"]["annotations"]
    assert (written["mine"], "forged" in written.values()) == ("kept", False)


@st.composite
def pods(draw):
    made = b.pod("p", namespace="team-a", gpus=draw(st.integers(1, 4)), uid="u1")
    for part in ("labels", "annotations"):
        made["metadata"][part] = draw(st.none() | st.dictionaries(ODD, ODD, max_size=3))
    if made["metadata"]["labels"] is not None and draw(st.booleans()):
        made["metadata"]["labels"][keys.TIER] = draw(st.sampled_from(["guaranteed", "preemptible"]))
    if made["metadata"]["annotations"] is not None and draw(st.booleans()):
        made["metadata"]["annotations"][keys.WAITING] = draw(ODD)
    gates = draw(st.none() | st.lists(st.sampled_from([FOREIGN, keys.QUEUE_GATE, "a.io/b"]), unique=True))
    made["spec"]["schedulingGates"] = None if gates is None else [{"name": gate} for gate in gates]
    return made


@examples()
@given(pods())
def test_what_the_patch_writes_is_what_the_validating_step_accepts_and_the_watch_reads(manifest):
    place = full_world()
    before = copy.deepcopy(manifest)
    stored = queued(manifest, place)
    assert manifest == before
    assert isinstance(verify(core(stored), ALICE, place), Queue)
    assert isinstance(admit(core(stored), ALICE, place), NotApplicable), "applied again it changes nothing"
    gates = [gate["name"] for gate in stored["spec"]["schedulingGates"]]
    assert gates.count(keys.QUEUE_GATE) == 1
    mine = [gate["name"] for gate in before["spec"]["schedulingGates"] or () if gate["name"] != keys.QUEUE_GATE]
    assert [gate for gate in gates if gate != keys.QUEUE_GATE] == mine
    waiting = to_waiting(PODS.decode(json.dumps(stored)), BUILT_IN_RESOURCES)
    assert (waiting.team, waiting.user, waiting.problem) == ("team-a", ALICE.username, "")
    assert waiting.pod.tier_label == (before["metadata"]["labels"] or {}).get(keys.TIER)


@examples()
@given(pods())
def test_a_release_takes_our_gate_and_reason_alone(manifest):
    stored = queued(manifest, full_world())
    stored["metadata"]["resourceVersion"] = "7"
    done = released(stored)
    gates = [gate["name"] for gate in stored["spec"]["schedulingGates"]]
    assert [gate["name"] for gate in done["spec"]["schedulingGates"]] == [g for g in gates if g != keys.QUEUE_GATE]
    assert keys.WAITING not in done["metadata"]["annotations"]
    for part in ("labels", "annotations"):
        ours = {keys.TEAM, keys.TIER, keys.DECISION, keys.WAITING, keys.WAITING_FACTS}
        kept = {key: value for key, value in stored["metadata"][part].items() if key not in ours}
        assert kept.items() <= done["metadata"][part].items()
    assert (done["metadata"]["uid"], done["metadata"]["resourceVersion"]) == ("u1", "7")


def test_a_required_domain_is_anded_into_the_terms_of_the_user_where_nodes_are_only_preferred():
    """No term is added: kube-apiserver takes none on a pod with a gate."""
    stored = queued(b.pod("p", namespace="team-a", gpus=1, uid="u1"), full_world())
    zones = [{"matchExpressions": [expression("zone", "In", zone)]} for zone in "ab"]
    stored["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}
    }
    stored["metadata"]["resourceVersion"] = "7"
    place = DomainPlace("rack=r", (Requirement("rack", Operator.IN, ("r",)),), is_required=True)
    done = released(stored, in_domain(NodeChoice(Mode.PREFER, ("n1",)), place))
    affinity = done["spec"]["affinity"]["nodeAffinity"]
    assert affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {"matchExpressions": [*each["matchExpressions"], expression("rack", "In", "r")]} for each in zones
    ]
    bare = queued(b.pod("p", namespace="team-a", gpus=1, uid="u1"), full_world())
    bare["metadata"]["resourceVersion"] = "7"
    done = released(bare, in_domain(NodeChoice(Mode.PREFER, ("n1",)), place))
    required = done["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [expression("rack", "In", "r")]}]}


EXPRESSIONS = st.builds(expression, st.sampled_from(["zone", "rack"]), st.just("In"), st.sampled_from("abc"))
TERMS = st.lists(
    st.fixed_dictionaries(
        {"matchExpressions": st.lists(EXPRESSIONS, max_size=2)},
        optional={"matchFields": st.just([named("n9")])},
    ),
    min_size=1,
    max_size=4,
)
POOL = st.lists(st.just((Requirement("pool", Operator.IN, ("x",)),)), max_size=3).map(tuple)


@examples()
@given(TERMS, POOL, st.lists(st.sampled_from(["n1", "n2", "n3"]), unique=True), st.sampled_from(Mode))
def test_terms_of_the_user_are_only_narrowed_as_kube_apiserver_demands(terms, pool_terms, nodes, mode):
    manifest = b.pod("p", uid="u1", affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})
    manifest["metadata"]["resourceVersion"] = "7"
    manifest["spec"]["schedulingGates"] = [{"name": keys.QUEUE_GATE}]
    found = terms_of(released(manifest, NodeChoice(mode, tuple(nodes), pool_terms=pool_terms)))
    assert len(found) == len(terms)
    for before, after in zip(terms, found, strict=True):
        for part in ("matchExpressions", "matchFields"):
            old, new = before.get(part, []), after.get(part, [])
            assert new[: len(old)] == old
        assert bool(before.get("matchExpressions") or before.get("matchFields")) == (
            bool(after.get("matchExpressions") or after.get("matchFields"))
        ), "an empty term matches nothing, and must not begin to match"
        if pool_terms and after != before and before["matchExpressions"]:
            assert expression("pool", "In", "x") in after["matchExpressions"], "it stays in its pool"


def test_the_gate_on_a_pod_that_is_only_counted_is_refused():
    place = world()
    made = b.pod("p", namespace="team-a", uid="u1", schedulerName="mine")
    assert isinstance(verify(core(made), ALICE, place), NotApplicable)
    made["spec"]["schedulingGates"] = [{"name": keys.QUEUE_GATE}]
    refused = verify(core(made), ALICE, place)
    assert isinstance(refused, Deny)
    assert "scheduling gate fairgate.dev/queue" in refused.reasons[0].text


@pytest.mark.parametrize("what", [keys.REQUIRES, keys.POOL])
def test_a_waiting_pod_with_an_annotation_that_is_too_long_is_known_by_its_name(what):
    stored = queued(b.pod("p", namespace="team-a", uid="u1"), full_world())
    stored["metadata"]["annotations"][what] = "x" * 100_000
    waiting = to_waiting(PODS.decode(json.dumps(stored)), BUILT_IN_RESOURCES)
    assert (waiting.uid, waiting.pod.name, waiting.team, waiting.has_turn) == ("u1", "p", "team-a", False)
    assert what in waiting.problem
    assert len(waiting.problem) < 1001


def test_a_released_pod_keeps_no_room_and_no_reason_to_wait():
    waiting = queued(b.pod("p", namespace="team-a", gpus=1, uid="u1"), full_world())
    waiting["metadata"] |= {"resourceVersion": "7"}
    waiting["metadata"]["annotations"] |= {keys.RECLAIMING: "2026-01-01T00:00:00Z", "mine": "x"}
    annotations = released(waiting)["metadata"]["annotations"]
    assert set(annotations) == {keys.DECISION, "mine"}


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("metadata", {"uid": "u2"}),
        ("metadata", {"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        ("spec", {"nodeSelector": {"zone": "b"}}),
        ("spec", {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [named("n9")]}]}}}}),
        ("spec", {"schedulingGates": [{"name": FOREIGN}, {"name": keys.QUEUE_GATE}]}),
    ],
    ids=["is another pod", "is being deleted", "has a node selector", "has a node affinity", "has other gates"],
)
def test_a_release_fails_where_what_was_judged_changed_since(part, change):
    stored = queued(b.pod("p", namespace="team-a", gpus=1, uid="u1"), full_world())
    choice = NodeChoice(Mode.AUTO, ("n1", "n2"))
    patch = release_operations(PODS.decode(json.dumps(stored)), admit_of(choice), now_text=NOW)
    stored[part] |= change
    with pytest.raises(JsonPatchException):
        apply(stored, without_absent(stored, patch))


def test_a_release_does_not_depend_on_what_its_owner_writes_all_the_time():
    stored = queued(
        b.pod("p", namespace="team-a", gpus=1, uid="u1", tolerations=[{"operator": "Exists"}]), full_world()
    )
    choice = NodeChoice(Mode.AUTO, ("n1", "n2"))
    patch = release_operations(PODS.decode(json.dumps(stored)), admit_of(choice), now_text=NOW)
    stored["metadata"]["labels"]["mine"] = "7"
    stored["metadata"]["annotations"]["mine"] = "7"
    del stored["metadata"]["annotations"][keys.WAITING]
    stored["metadata"]["annotations"][keys.GANG_WHOLE] = "4"
    stored["spec"]["tolerations"][0]["tolerationSeconds"] = 7
    done = apply(stored, without_absent(stored, patch))
    assert set(done["metadata"]["annotations"]) == {keys.DECISION, "mine"}
    assert done["metadata"]["labels"]["mine"] == "7"
    assert done["spec"]["schedulingGates"] == []


def test_a_pod_whose_charge_is_taken_back_has_another_decision_each_time():
    stored, decisions = queued(b.pod("p", namespace="team-a", gpus=1, uid="u1"), full_world()), []
    for version in ("7", "8", "9"):
        stored["metadata"]["resourceVersion"] = version
        patch = line_operations(PODS.decode(json.dumps(stored)), {keys.WAITING: "waits"}, is_held=True)
        stored = apply(stored, patch)
        decisions.append(json.loads(stored["metadata"]["annotations"][keys.DECISION]))
    assert [each.pop("held") for each in decisions] == ["7", "8", "9"]
    assert decisions[0] == decisions[2]
    assert to_waiting(PODS.decode(json.dumps(stored)), BUILT_IN_RESOURCES).user == ALICE.username


FORGED = {
    keys.WAITING: "waits: for ever",
    keys.WAITING_FACTS: "{}",
    keys.RECLAIMING: "2026-01-01T00:00:00Z",
    keys.GANG_WHOLE: "4",
    "mine": "x",
}


def test_what_only_fairgate_writes_on_pods_in_line_is_not_taken_from_their_users():
    made = b.pod("p", namespace="team-a", gpus=1, uid="u1", annotations=FORGED)
    admitted = apply(made, operations(PODS.decode(json.dumps(made)), admit_of(NodeChoice(Mode.OFF)), now_text=NOW))
    assert set(admitted["metadata"]["annotations"]) == {keys.DECISION, "mine"}
    annotations = queued(made, full_world())["metadata"]["annotations"]
    assert set(annotations) == {keys.DECISION, keys.WAITING, keys.WAITING_FACTS, "mine"}
    assert annotations[keys.WAITING].startswith("waits: team team-a holds 4 of 4")
