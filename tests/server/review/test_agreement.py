"""The webhook, the commit, a review and an explanation agree on the same pod in the same world."""

import base64
import json
import re
import tempfile
from fractions import Fraction
from pathlib import Path

import jsonpatch
from hypothesis import event, given
from hypothesis import strategies as st

from tests.blackbox.in_process import ask
from tests.cases.test_cases import open_reviewer, pod, review
from tests.examples import examples
from tests.server.review.test_sums_agree import OF_DRA, written
from webhook.core.admission.verification import verify
from webhook.core.explain.explanation import explain
from webhook.core.model.amounts import Namespace, gpu_number
from webhook.core.model.decision import Admit, Deny, NotApplicable, Outcome, Retry
from webhook.core.model.pod import Requester
from webhook.core.model.reasons import refusal_text
from webhook.kube.admission.templates import read_template
from webhook.kube.admission.trial_pods import Simulator

HOST, ZONE = "kubernetes.io/hostname", "zone"
ALICE = Requester("alice")
CLAIMS = {"alone": 1, "shared": 2, "unknown": None}


def claim(name, number):
    requests = [{"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": number}}]
    metadata = {"name": name, "namespace": "team-a", "uid": f"uid-of-{name}"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": requests}},
    }


def case_of(nodes, share):
    found, objects = written([(OF_DRA, size) for size in nodes])
    for number, each in enumerate(found.values()):
        each["labels"] = {ZONE: "ab"[number % 2]}
    guaranteed, more, per_pod, per_user = share
    team = {"name": "a", "namespaces": ["team-a"], "gpus": {"guaranteed": guaranteed, "limit": guaranteed + more}}
    team |= {"perPod": {"limit": per_pod}, "perUser": {"limit": per_user}}
    objects += [claim(name, number) for name, number in CLAIMS.items() if number is not None]
    policy = {"teams": [team], "exempt": {"namespaces": ["team-exempt"]}}
    return {"policy": policy, "nodes": found, "objects": objects}


def selected(app):
    return {"labelSelector": {"matchLabels": {"app": app}}}


_apps = st.sampled_from(["web", "batch"])
_anti = st.builds(lambda app, key: [{"topologyKey": key} | selected(app)], _apps, st.sampled_from([HOST, ZONE]))
_spread = st.builds(
    lambda app, key, is_hard: [
        {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule" if is_hard else "ScheduleAnyway"}
        | selected(app)
    ],
    _apps,
    st.sampled_from([HOST, ZONE]),
    st.booleans(),
)


_claims = st.sampled_from([(), (), (), (), (), ("alone",), ("shared",), ("shared",), ("alone", "shared"), ("unknown",)])


@st.composite
def steps(draw):
    """One pod as its user writes it."""
    labels = {"app": draw(_apps)}
    if tier := draw(st.sampled_from([None, None, None, None, "guaranteed", "preemptible", "gold"])):
        labels["fairgate.dev/tier"] = tier
    spec = {}
    if terms := draw(st.none() | _anti):
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if rules := draw(st.none() | _spread):
        spec["topologySpreadConstraints"] = rules
    if names := draw(_claims):
        spec["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in names]
    if draw(st.integers(0, 9)) == 0:
        spec["nodeName"] = "n0"
    namespace = draw(st.sampled_from(["team-a"] * 9 + ["team-exempt", "unowned"]))
    gpus = draw(st.integers(0, 3))
    return {"gpus": gpus, "metadata": {"labels": labels, "namespace": namespace}, "spec": spec}


def outcome_of(decision):
    """Return the outcome of a decision, codes with their numbers, and the charge."""
    match decision:
        case Admit():
            charge = decision.charge
            return Outcome.ADMIT, decision.reason.code, charge.team, charge.tier, gpu_number(charge.gpus)
        case Deny(reasons):
            return Outcome.DENY, reasons[0].code, numbers(refusal_text(reasons))
        case Retry(reason):
            return Outcome.RETRY, reason.code, reason.text
        case NotApplicable():
            charge = decision.charge
            return Outcome.SKIP, decision.reason.code, None if charge is None else (charge.team, charge.gpus)


def numbers(text):
    """A refusal without the names of the holders; a review has only reserved earlier pods, not seen them."""
    text = re.sub(r"; largest holders: .*?; (?=a request|no )", "; ", text)
    return re.sub(r"used ([\d.]+), reserved ([\d.]+)", lambda found: str(sum(map(Fraction, found.groups()))), text)


def call(reviewer, method, manifest, uid):
    answer = ask(reviewer, method, review(manifest, uid=uid, requester=ALICE.username))
    return answer.record, json.loads(answer.body)["response"]


def same(record, decision):
    """Hold what the webhook logs against a decision that something else came to."""
    assert record.outcome == outcome_of(decision)[0], (record, decision)
    match decision:
        case Admit():
            assert (record.code, record.team, record.tier, record.gpus) == outcome_of(decision)[1:]
        case Deny(reasons):
            assert (record.code, record.message) == (reasons[0].code, refusal_text(reasons))
        case Retry(reason) | NotApplicable(reason):
            assert (record.code, record.message) == (reason.code, reason.text)


@given(
    nodes=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    share=st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(2, 5), st.integers(2, 12)),
    pods=st.lists(steps(), min_size=3, max_size=6),
)
@examples(60)
def test_webhook_commit_review_and_explanation_agree(nodes, share, pods):
    case = case_of(nodes, share)
    with tempfile.TemporaryDirectory() as folder:
        reviewer, beside = open_reviewer(case, Path(folder)), open_reviewer(case, Path(folder)).world
    simulator = Simulator(beside, now_text="")
    for number, step in enumerate(pods):
        uid, name = f"uid-{number}", {"name": f"p{number}"}
        manifest = pod(step | {"metadata": step["metadata"] | name})
        namespace = Namespace(manifest["metadata"]["namespace"])
        (reviewed,) = simulator.simulate(read_template(manifest, namespace=namespace, world=beside), 1, requester=ALICE)
        explanation = explain(
            read_template(manifest, namespace=namespace, world=reviewer.world).pod, ALICE, reviewer.world
        )
        assert outcome_of(explanation.decision) == outcome_of(reviewed.decision)
        event(outcome_of(explanation.decision)[1])
        record, response = call(reviewer, "mutate", manifest, uid)
        same(record, explanation.decision)
        if isinstance(explanation.decision, Admit):
            assert (record.team, record.gpus) == (explanation.team.name, gpu_number(explanation.pod.demand.gpus))
            assert record.nodes == explanation.decision.node_choice.nodes == reviewed.decision.node_choice.nodes
        elif record.outcome == Outcome.DENY:
            assert record.gpus == gpu_number(explanation.pod.demand.gpus)
        if not response["allowed"]:
            continue
        if "patch" in response:
            manifest = jsonpatch.apply_patch(manifest, json.loads(base64.b64decode(response["patch"])))
        manifest["metadata"]["uid"] = uid
        stored = read_template(manifest, namespace=namespace, world=reviewer.world).pod._replace(uid=uid)
        verified = verify(stored, ALICE, reviewer.world)
        assert outcome_of(verified) == outcome_of(explanation.decision)
        committed, _ = call(reviewer, "validate", manifest, uid)
        same(committed, verified)
        for each in ("outcome", "code", "team", "tier", "gpus"):
            assert getattr(committed, each) == getattr(record, each)
