"""A prediction for many pods at once equals the answers of the reviewer to each of them, one by one."""

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from tests.builders import decision_of
from tests.cases.test_cases import ask, open_reviewer, pod
from tests.examples import examples
from webhook.core.model.amounts import Namespace, ordinal
from webhook.core.model.decision import Deny, Queue
from webhook.core.model.pod import Requester
from webhook.simulation.trial_pods import Simulator, read_template

CONTROLLER = "system:serviceaccount:kube-system:job-controller"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
MODEL = "nvidia.com/gpu.product"


def case_of(*, guaranteed, limit, nodes, mode="auto", model_limit=None, depth=0):
    team = {"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": guaranteed, "limit": limit}}
    if depth:
        team |= {"onLimit": "queue", "onNoRoom": "queue", "queueDepth": depth}
    if model_limit is not None:
        team["models"] = {"A": {"limit": model_limit}}
    amounts = {"nvidia.com/gpu": "2"}
    made = {f"n{i}": {"allocatable": amounts, "labels": {MODEL: "A" if i % 2 else "B"}} for i in range(nodes)}
    return {"policy": {"teams": [team], "placement": {"mode": mode}}, "nodes": made}


def asked_one_by_one(reviewer, step, count):
    for number in range(count):
        named = step | {"metadata": step["metadata"] | {"name": f"p{number}"}}
        record, _, manifest = ask(reviewer, named, f"uid-{number}")
        annotations = manifest["metadata"].get("annotations", {})
        if "fairgate.dev/waiting" in annotations:
            yield record.outcome, record.tier, record.code, annotations["fairgate.dev/waiting"].rpartition("; ")[2]
            continue
        decided = decision_of(manifest) if "fairgate.dev/decision" in annotations else {}
        yield record.outcome, record.tier, record.code, (decided.get("nodes") or [None])[0]


def predicted(world, step, count):
    template = read_template(pod(step), namespace=Namespace("team-a"), world=world)
    for answer in Simulator(world, now_text="").simulate(template, count, requester=Requester(CONTROLLER)):
        if isinstance(answer.decision, Queue):
            code, places = answer.decision.reason.code, range(answer.place, answer.place + answer.count)
            yield from (("queue", "", code, f"{ordinal(place)} in the queue") for place in places)
            continue
        if isinstance(answer.decision, Deny):
            outcome = ("deny", "", answer.decision.reasons[0].code, None)
        else:
            outcome = ("admit", answer.decision.charge.tier, answer.decision.reason.code, answer.node)
        yield from itertools.repeat(outcome, answer.count)


@examples(25)
@given(
    guaranteed=st.integers(0, 6),
    more=st.integers(0, 8) | st.none(),
    nodes=st.integers(0, 4),
    mode=st.sampled_from(["auto", "require", "prefer", "off"]),
    model_limit=st.integers(0, 4) | st.none(),
    gpus=st.integers(1, 3),
    count=st.integers(1, 14),
    tier=st.sampled_from([None, "guaranteed", "preemptible"]),
    depth=st.sampled_from([0, 0, 1, 3, 20]),
)
@example(guaranteed=2, more=9, nodes=1, mode="auto", model_limit=None, gpus=1, count=14, tier=None, depth=0)
@example(guaranteed=2, more=0, nodes=1, mode="auto", model_limit=None, gpus=1, count=9, tier=None, depth=5)
def test_many_pods_at_once_get_the_same_answer_as_each_alone(
    tmp_path_factory, *, guaranteed, more, nodes, mode, model_limit, gpus, count, tier, depth
):
    limit = "unlimited" if more is None else guaranteed + more
    case = case_of(guaranteed=guaranteed, limit=limit, nodes=nodes, mode=mode, model_limit=model_limit, depth=depth)
    labels = {} if tier is None else {"fairgate.dev/tier": tier}
    step = {"gpus": gpus, "requester": CONTROLLER, "metadata": {"ownerReferences": [OWNER], "labels": labels}}
    folder = tmp_path_factory.mktemp("policy")
    want = list(asked_one_by_one(open_reviewer(case, folder), step, count))
    assert list(predicted(open_reviewer(case, folder).world, step, count)) == want


def test_a_million_waiting_pods_need_few_decisions(tmp_path):
    world = open_reviewer(case_of(guaranteed=300_000, limit="unlimited", nodes=2), tmp_path).world
    template = read_template(pod({}), namespace=Namespace("team-a"), world=world)
    simulator = Simulator(world, now_text="")
    answers = list(simulator.simulate(template, 1_000_000, requester=Requester(CONTROLLER)))
    tiers = {
        tier: sum(a.count for a in answers if a.decision.charge.tier == tier) for tier in ("guaranteed", "preemptible")
    }
    assert tiers == {"guaranteed": 300_000, "preemptible": 700_000}
    assert len(simulator.created) < 200


def test_an_object_that_is_not_a_pod_is_refused_with_its_path(tmp_path):
    world = open_reviewer(case_of(guaranteed=1, limit=1, nodes=0), tmp_path).world
    found = read_template(
        {"metadata": {}, "spec": {"containers": [{"name": 1}]}}, namespace=Namespace("a"), world=world
    )
    assert [(reason.code, reason.text) for reason in found.reasons] == [
        ("InvalidRequest", "spec.containers[0].name: expected str, got int")
    ]
