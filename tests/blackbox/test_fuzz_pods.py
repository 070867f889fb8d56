"""Random pods as people write them: mutation is idempotent, and no limit and no node is ever exceeded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.blackbox.fuzzing import LIMITS, NODES, POLICY, UNIT, assert_answer, patched, rarely
from tests.blackbox.in_process import InProcess
from tests.blackbox.objects import GPU, TIER, pod, review
from tests.examples import examples


@pytest.fixture(scope="module")
def reviewer(tmp_path_factory):
    return InProcess(tmp_path_factory.mktemp("reviewer"), POLICY, NODES)


LABELS = {"gpu": ["a100", "t4", "h100"], "memory": ["16000", "80000"], "zone": ["x"], "kubernetes.io/hostname": ["n1"]}
KEYS = st.sampled_from(sorted(LABELS))


@st.composite
def requirements(draw, of=KEYS):
    key = draw(of)
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))
    known = LABELS.get(key, ["n0", "n1", "n2", "n3", "n4"])
    values = {
        "In": st.lists(st.sampled_from(known), min_size=1, max_size=2),
        "NotIn": st.lists(st.sampled_from(known), min_size=1, max_size=2),
        "Gt": st.sampled_from([["20000"], ["-1"], ["x"]]),
        "Lt": st.sampled_from([["20000"], ["90000"]]),
    }
    return {"key": key, "operator": operator} | ({"values": draw(values[operator])} if operator in values else {})


FIELDS = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.sampled_from(["n0", "n1", "n2", "n3", "n9"]).map(lambda name: [name]),
    }
)
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(requirements(), max_size=2),
        "matchFields": st.lists(FIELDS, min_size=1, max_size=1),
    },
)
AFFINITY = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.fixed_dictionaries(
            {},
            optional={
                "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
                    {"nodeSelectorTerms": st.lists(TERMS, min_size=1, max_size=3)}
                ),
                "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
                    st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": TERMS}), max_size=2
                ),
            },
        ),
        "podAffinity": st.just({}),
    },
)
TOLERATIONS = st.fixed_dictionaries(
    {"operator": st.just("Exists")},
    optional={"key": st.sampled_from([GPU, "other"]), "effect": st.sampled_from(["NoSchedule", "NoExecute"])},
)


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": st.dictionaries(KEYS, st.sampled_from(["a100", "t4", "16000", "x"]), max_size=1),
        "affinity": AFFINITY,
        "tolerations": st.lists(TOLERATIONS, max_size=2),
        "schedulerName": rarely("volcano", "default-scheduler"),
        "volumes": st.just([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
        "initContainers": st.sampled_from([1, 4]).map(
            lambda gpus: [pod("i", "x", gpus=gpus)["spec"]["containers"][0] | {"restartPolicy": "Always"}]
        ),
    },
)


@st.composite
def creations(draw):
    """A pod of one of the teams, and how it is created."""
    namespace = draw(rarely("unowned", "kube-system", "team-b", "team-b", "team-a"))
    manifest = pod("p", namespace, gpus=draw(rarely(0, 7, 9, 1, 2, 3)), **draw(SPECS))
    if draw(rarely("n1", "n9", "")):
        manifest["spec"]["nodeName"] = "n1"
    manifest["metadata"]["labels"] = draw(
        st.fixed_dictionaries(
            {}, optional={"app": st.just("kafka"), TIER: st.sampled_from(["guaranteed", "preemptible"])}
        )
    )
    manifest["metadata"]["annotations"] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "fairgate.dev/pool": rarely("none", "a100", "t4"),
                "fairgate.dev/requires": rarely("rdma", "nvlink", " , "),
            },
        )
    )
    for key in ("labels", "annotations"):
        if not manifest["metadata"][key] and draw(st.booleans()):
            del manifest["metadata"][key]
    return manifest, draw(st.sampled_from(["alice", "bob"])), draw(st.integers(0, 4)) == 0


@examples(40)
@given(st.lists(creations(), min_size=1, max_size=12), st.booleans())
def test_pods_never_pass_a_limit_or_fill_a_node_beyond_its_gpus(reviewer, listed, all_at_once):
    """One after another, or all mutated before the first is validated: limits must hold either way."""
    reviewer.reset()
    sent = [review(made, uid=f"u{n}", user=who, dry_run=dry) for n, (made, who, dry) in enumerate(listed)]
    rounds = [sent] if all_at_once else [[one] for one in sent]
    held = dict.fromkeys(("n0", "n1", "n2", "n3", "n4"), 0)
    for questions in rounds:
        for final in [advised for question in questions if (advised := mutated_twice(reviewer, question))]:
            commit(reviewer, final, held)


def mutated_twice(reviewer, sent):
    """Take a review through /mutate, and once more; None where it is refused."""
    before = reviewer.charged()
    response = assert_answer(reviewer.ask("/mutate", sent), sent["request"]["uid"])
    assert reviewer.charged() == before
    if not response["allowed"]:
        return None
    if "patch" in response:
        sent = patched(sent, response)
        again = reviewer.ask("/mutate", sent)["response"]
        assert again["allowed"]
        assert "patch" not in again
    return sent


def commit(reviewer, sent, held):
    """Send a review to /validate, and check limits and nodes."""
    before = reviewer.charged()
    request = sent["request"]
    request["object"]["metadata"]["uid"] = f"uid-{request['uid']}"
    response = assert_answer(reviewer.ask("/validate", sent), request["uid"])
    if not response["allowed"] or request["dryRun"]:
        assert reviewer.charged() == before
        return
    for team, units in reviewer.charged().items():
        assert units <= LIMITS.get(team, 10**9) * UNIT
    audit = response["auditAnnotations"]
    if audit.get("nodes"):
        held[audit["nodes"]] += int(audit["gpus"])
        assert held[audit["nodes"]] <= 10
