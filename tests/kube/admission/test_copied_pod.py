"""Copies of pods: what the decision on another pod wrote is taken off, and what the user wrote stays."""

import copy
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from tests.examples import examples
from tests.kube.conftest import admit_of
from tests.kube.support.patching import NOW, PREFERRED, REQUIRED, expression, named, node_affinity, patched
from webhook.core.model.constraints import Effect, Operator, Requirement, Toleration
from webhook.core.model.decision import NodeChoice
from webhook.core.model.policy import Mode, Pool
from webhook.kube.admission.copied_pod import SAME_REQUEST_SECONDS, without_copied_decision
from webhook.kube.admission.pod_patch import apply, operations
from webhook.kube.nodes.holds import rfc3339
from webhook.kube.objects import keys, objects
from webhook.kube.pod.pods import to_pod, unix_seconds

MEMORY = Requirement("nvidia.com/gpu.memory", Operator.GT, ("75000",))
TOLERATION = Toleration(b.GPU, exists=True, effect=Effect.NO_SCHEDULE)
POOL = Pool(
    "a100", node_selector=(("gpu", "a100"),), affinity=(MEMORY,), tolerations=(TOLERATION,), capabilities=frozenset()
)
CHOICE = NodeChoice(
    Mode.AUTO,
    ("node-1", "node-2"),
    pool="a100",
    node_selector=POOL.node_selector,
    pool_terms=((MEMORY,),),
    tolerations=POOL.tolerations,
)
LATER = rfc3339(unix_seconds(NOW) + SAME_REQUEST_SECONDS + 1)


def read(manifest):
    return msgspec.json.decode(json.dumps(manifest), type=objects.Pod)


def restored(manifest, *, now_text="", pools=(POOL,)):
    """A manifest after what was written for another pod is taken off; the struct and the patch must agree."""
    found = without_copied_decision(read(manifest), pools, now_text=now_text)
    after = apply(manifest, found.operations)
    made = {"namespace": "vision", "weights": {b.GPU: 1}}
    assert to_pod(found.pod, **made) == to_pod(read(after), **made)
    return after


def bare(manifest):
    """A manifest without the members that are empty: those that a patch makes stay."""
    found = copy.deepcopy(manifest)
    for part in ("labels", "annotations"):
        if not found["metadata"].get(part):
            found["metadata"].pop(part, None)
    for part in ("nodeSelector", "tolerations", "affinity", "schedulingGates"):
        if not found["spec"].get(part):
            found["spec"].pop(part, None)
    return found


def copied(manifest, name="copy"):
    """A pod that was decided on, under another name."""
    found = patched(manifest, admit_of(CHOICE))
    found["metadata"]["name"] = name
    return found


OWN = {
    "nothing": {},
    "a zone": {"nodeSelector": {"zone": "a"}},
    "the label of the pool": {"nodeSelector": {"gpu": "a100"}},
    "the toleration of the pool": {"tolerations": [{"key": b.GPU, "operator": "Exists", "effect": "NoSchedule"}]},
    "another toleration": {"tolerations": [{"key": "spot", "operator": "Exists"}]},
    "a term": {
        "affinity": {
            "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression("zone", "In", "a")]}]}}
        }
    },
    "two terms": {
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [{"matchExpressions": [expression("zone", "In", zone)]} for zone in "ab"]
                }
            }
        }
    },
    "the condition of the pool": {
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [{"matchExpressions": [expression("nvidia.com/gpu.memory", "Gt", "75000")]}]
                }
            }
        }
    },
    "a preference": {
        "affinity": {
            "nodeAffinity": {
                PREFERRED: [{"weight": 3, "preference": {"matchExpressions": [expression("zone", "In", "a")]}}]
            }
        }
    },
    "rules between pods": {"affinity": {"podAntiAffinity": {PREFERRED: []}}},
    "a gate": {"schedulingGates": [{"name": "example.com/wait"}]},
}


@pytest.mark.parametrize("spec", OWN.values(), ids=OWN)
def test_what_the_user_wrote_stays_and_what_the_decision_wrote_goes(spec):
    manifest = b.pod(**copy.deepcopy(spec))
    got = bare(restored(copied(manifest)))
    assert got["spec"] == bare(manifest)["spec"]
    assert got["metadata"] == {"name": "copy", "namespace": "vision"}


@given(st.lists(st.sampled_from(sorted(OWN)), max_size=3, unique=True), st.sampled_from(Mode))
@examples(60)
def test_a_copy_of_any_pod_is_as_its_user_wrote_it(names, mode):
    spec = {}
    for name in names:
        spec |= copy.deepcopy(OWN[name])
    manifest = b.pod(**spec)
    found = patched(manifest, admit_of(CHOICE._replace(mode=mode)))
    assert bare(restored(found))["spec"] == bare(manifest)["spec"]


def test_the_tier_that_the_user_asked_for_stays():
    asked = b.pod(labels={keys.TIER: "preemptible", "app": "x"})
    found = patched(asked, admit_of(CHOICE)._replace(requested_tier="preemptible"))
    assert restored(found)["metadata"]["labels"] == {keys.TIER: "preemptible", "app": "x"}


def test_a_copy_of_a_pod_in_line_loses_the_gate_and_what_it_waited_for():
    manifest = copied(b.pod(schedulingGates=[{"name": "a"}, {"name": keys.QUEUE_GATE}, {"name": "b"}]))
    manifest["metadata"]["annotations"] |= {keys.WAITING: "waits", keys.EVICT_AT: NOW, "mine": "stays"}
    found = restored(manifest)
    assert found["spec"]["schedulingGates"] == [{"name": "a"}, {"name": "b"}]
    assert found["metadata"]["annotations"] == {"mine": "stays"}


def test_a_toleration_of_held_nodes_is_never_the_users():
    manifest = copied(b.pod())
    manifest["spec"]["tolerations"].append({"key": "fairgate.dev/held", "operator": "Exists"})
    assert "tolerations" not in bare(restored(manifest))["spec"]


@pytest.mark.parametrize("spec", OWN.values(), ids=OWN)
def test_a_copy_without_the_decision_loses_the_list_of_nodes(spec):
    """As `kubectl debug --copy-to` makes it, which keeps no annotation."""
    manifest = b.pod(**copy.deepcopy(spec))
    listed = NodeChoice(Mode.AUTO, ("node-1", "node-2"))
    found = patched(manifest, admit_of(listed))
    for part in ("labels", "annotations"):
        found["metadata"].pop(part)
    assert bare(restored(found)) == bare(manifest)


@pytest.mark.parametrize(
    "affinity",
    [
        {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [named("node-1")]}]}},
        {PREFERRED: [{"weight": 100, "preference": {"matchFields": [named("node-1")]}}]},
        {
            REQUIRED: {"nodeSelectorTerms": [{"matchFields": [named("node-1")]}]},
            PREFERRED: [{"weight": 50, "preference": {"matchFields": [named("node-1")]}}],
        },
        {
            REQUIRED: {"nodeSelectorTerms": [{"matchFields": [named(name)]} for name in ("node-1", "node-2")]},
            PREFERRED: [{"weight": 100, "preference": {"matchFields": [named("node-2")]}}],
        },
        {
            REQUIRED: {"nodeSelectorTerms": [{"matchFields": [named("node-1")]}, {"matchExpressions": []}]},
            PREFERRED: [{"weight": 100, "preference": {"matchFields": [named("node-1")]}}],
        },
    ],
    ids=["a pin, as of a DaemonSet", "a preference", "another weight", "another order", "other terms"],
)
def test_names_in_another_form_are_the_users(affinity):
    manifest = b.pod(affinity={"nodeAffinity": affinity})
    assert restored(manifest) == manifest


def test_names_of_nodes_that_another_wrote_since_stay():
    """As many as the decision chose are its own; a pin that its user adds to a copy makes it another number."""
    manifest = copied(b.pod())
    terms = [{"matchFields": [named("mine")]}]
    manifest["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    assert node_affinity(restored(manifest)) == {REQUIRED: {"nodeSelectorTerms": terms}}


@pytest.mark.parametrize(
    ("name", "now", "is_own"),
    [("train-0", NOW, True), ("copy", NOW, False), ("train-0", LATER, False), ("train-0", "", False)],
    ids=["the same request", "another name", "restored later", "a file"],
)
def test_a_decision_is_a_pods_own_within_one_request(name, now, is_own):
    manifest = copied(b.pod(), name)
    assert (without_copied_decision(read(manifest), (POOL,), now_text=now).operations == []) is is_own


def test_a_pod_that_gets_its_name_later_keeps_its_decision_within_one_request():
    manifest = b.pod()
    del manifest["metadata"]["name"]
    manifest["metadata"]["generateName"] = "train-"
    made = patched(manifest, admit_of(CHOICE))
    assert without_copied_decision(read(made), (POOL,), now_text=NOW).operations == []
    made["metadata"]["generateName"] = "other-"
    assert without_copied_decision(read(made), (POOL,), now_text=NOW).operations


@pytest.mark.parametrize("text", ["", "{}", "[]", "gold", '{"nodes": 3}', "{" * 9999])
def test_what_is_no_decision_removes_no_constraint(text):
    spec = OWN["a term"] | OWN["a zone"]
    manifest = b.pod(annotations={keys.DECISION: text}, labels={keys.TEAM: "nlp", keys.TIER: "guaranteed"}, **spec)
    found = bare(restored(manifest))
    assert (found["spec"], found["metadata"]) == (b.pod(**spec)["spec"], {"name": "train-0", "namespace": "vision"})


def test_of_a_pod_that_asked_for_nothing_things_are_only_removed():
    operations = without_copied_decision(read(copied(b.pod())), (POOL,)).operations
    assert {each["op"] for each in operations} == {"remove"}


def test_a_copy_that_lost_its_labels_gets_those_of_its_own_decision():
    made = copied(b.pod("train", gpus=1))
    del made["metadata"]["labels"]
    found = without_copied_decision(read(made), (POOL,), now_text=LATER)
    again = apply(made, [*found.operations, *operations(found.pod, admit_of(CHOICE), now_text=LATER)])
    assert keys.TEAM in again["metadata"]["labels"]
