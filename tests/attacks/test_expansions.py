"""No object takes more than its budget, and none ends in an exception, whatever its fields are and however large.

Work is counted: lines that run and bytes that are taken, never seconds.
"""

import contextlib
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.attacks.crowd import crowded, reviewer, turn
from tests.attacks.expansions import claims, expansions, honest_workflow
from tests.attacks.growing import Growth, at, grown, paths, put, ways, work_of
from tests.attacks.shapes import review
from tests.cases.samples import FOLDER, Sample, read_yaml, samples
from tests.examples import USUAL, examples
from webhook.core.model.pod import Requester
from webhook.core.model.policy import BUILT_IN_RESOURCES
from webhook.kube.kinds.kind_row import Related
from webhook.kube.kinds.model import BYTES, STEPS, Budget, BudgetSpentError, Unknown, Workload
from webhook.kube.kinds.table import kind_table
from webhook.kube.objects import bounds
from webhook.kube.workloads.expand import expand, judge
from webhook.kube.workloads.gang_size import UnknownSizeError, gang_plan
from webhook.kube.workloads.gangs import gang_marks

KINDS = kind_table()
SAMPLES = [
    *samples(),
    *(
        Sample(
            f"unknown: {each['of']['kind']}", {"metadata": {"name": "it", "namespace": "vision"}, **each["of"]}, [], {}
        )
        for each in read_yaml(FOLDER / "unknown_kinds" / "asks.yaml")
    ),
]
WORLD = crowded(20)
GANG = {"fairgate.dev/gang": "true", "fairgate.dev/topology": "zone"}

LINES_A_STEP = 8
LINES_AT_LEAST = 10_000
PEAK_BYTES = 12 * 1024 * 1024
"""What an expansion may take beside its budget: it is multiplied by nothing that a tenant chooses."""

LEAVES = [
    *(None, True, 0, 5, -1, 1.5, 10**30, 10**5000, float("inf"), float("nan")),
    *("", "x", "9" * 5000, "0x" + "f" * 5000, "x" * 70_000, "{{workflow.parameters.a}}", "\ud800", "\u0663"),
    *([], {}, [5], ["x"], [None], [[]], [{}], {"a": 5}, {"name": []}, {"name": {}}, {1: 2}, {None: {}}),
]


@st.composite
def places(draw):
    """A sample that is a gang, with what else is known, and one of its places; `None` stands for the sample itself."""
    sample = draw(st.sampled_from(SAMPLES))
    metadata = {**sample.of["metadata"], "annotations": {**sample.of["metadata"].get("annotations", {}), **GANG}}
    documents = [{**sample.of, "metadata": metadata}, *sample.related]
    index = draw(st.integers(0, len(documents) - 1))
    return documents, index, draw(st.sampled_from(list(paths(documents[index]))))


def used(document, related):
    """Expand and judge an object on one budget; return what became of it, and the budget."""
    budget = Budget()
    found = expand(document, kinds=KINDS, related=Related.of(related), budget=budget)
    if isinstance(found, Workload):
        judge(found, Requester("mallory"), WORLD, budget)
    return found, budget


@examples(20 * USUAL)
@given(places(), st.sampled_from(LEAVES))
def test_a_field_of_any_type_makes_pods_or_a_problem(place, leaf):
    documents, index, path = place
    documents[index] = put(documents[index], path, leaf)
    document, *related = documents
    found, _ = used(document, related)
    for pods in found.pod_sets if isinstance(found, Workload) else ():
        assert pods.template or pods.problem
    gang_marks(document, Budget())
    with contextlib.suppress(UnknownSizeError):
        assert gang_plan(document, kinds=KINDS, namespace="vision", weights=BUILT_IN_RESOURCES).size >= 1


@st.composite
def growths(draw, document):
    """One to four parts of an object that grow, besides its kind."""
    known = [path for path in paths(document) if path[0] not in {"apiVersion", "kind"}]
    chosen = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    return [
        Growth(path, draw(st.sampled_from(ways(at(document, path)))), draw(st.sampled_from([10, 100, 1000, 10_000])))
        for path in chosen
    ]


@examples(2 * USUAL)
@given(st.data(), st.sampled_from(SAMPLES), st.booleans())
def test_work_follows_the_budget_however_parts_of_an_object_grow(data, sample, is_gang):
    document = sample.of
    if is_gang:
        document = {**document, "metadata": {**document["metadata"], "annotations": dict(GANG)}}
    document = grown(document, data.draw(growths(document)))
    check_work(document, sample.related)


@pytest.mark.slow
@pytest.mark.parametrize(
    "document", [pytest.param(document, id=name) for name, document in expansions(bounds.LABEL_BYTES)]
)
def test_work_follows_the_budget_for_every_known_attack(document):
    check_work(document, [])


def check_work(document, related):
    """Assert that an expansion and its judgment do nothing that is not taken from their budget."""
    found, budget = used(document, related)
    steps, written = STEPS - max(0, budget.steps_left), BYTES - max(0, budget.bytes_left)
    sets = found.pod_sets if isinstance(found, Workload) else []
    assert len(sets) <= bounds.POD_SETS + 1
    work = work_of(lambda: used(document, related))
    assert work.lines <= LINES_A_STEP * steps + LINES_AT_LEAST, (steps, written, found)
    assert work.peak_bytes <= PEAK_BYTES, (steps, written, found)


@examples(USUAL)
@given(st.data(), st.sampled_from(SAMPLES))
def test_marks_of_gangs_follow_the_budget_too(data, sample):
    document = {**sample.of, "metadata": {**sample.of["metadata"], "annotations": dict(GANG)}}
    document = grown(document, data.draw(growths(document)))
    assume(len(json.dumps(document)) > 10_000)
    budget = Budget()

    def marks():
        with contextlib.suppress(BudgetSpentError):
            gang_marks(document, budget)

    marks()
    steps = STEPS - max(0, budget.steps_left)
    budget = Budget()
    assert work_of(marks).lines <= LINES_A_STEP * steps + LINES_AT_LEAST


@pytest.mark.slow
def test_a_parameter_that_is_inserted_many_times_is_not_inserted():
    found, budget = used(dict(expansions(250 * 1024))["argo, a parameter that is inserted often"], [])
    assert isinstance(found, Unknown)
    assert found.is_too_large
    assert STEPS - budget.steps_left < 1000


def test_a_large_workflow_is_judged_as_a_whole():
    found, budget = used(honest_workflow(templates=500, tasks=2000), [])
    assert len(found.pod_sets) == 30
    assert found.is_at_most
    assert budget.steps_left > 0


def test_a_job_set_of_thousands_of_replicas_is_a_few_groups_of_pods():
    jobs = [
        {
            "name": f"r{number}",
            "replicas": 5000,
            "template": {"spec": {"parallelism": 8, "template": {"spec": {"containers": [{"name": "c"}]}}}},
        }
        for number in range(bounds.POD_SETS)
    ]
    document = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": jobs}}
    found, budget = used(document, [])
    assert [pods.count for pods in found.pod_sets] == [40_000] * bounds.POD_SETS
    assert STEPS - budget.steps_left < STEPS / 4


@pytest.mark.parametrize("method", ["workloads", "jobs", "gangs"])
def test_every_known_attack_is_answered(method):
    webhook = reviewer(WORLD)
    for name, document in expansions(16 * 1024):
        answer = json.loads(turn(webhook, method, review(document)).answer.body)
        assert answer["response"]["allowed"], name


@pytest.mark.slow
def test_an_object_that_is_too_large_is_answered_with_a_warning():
    document = dict(expansions(250 * 1024))["argo, a parameter that is inserted often"]
    answer = turn(reviewer(WORLD), "workloads", review(document)).answer
    assert (answer.record.outcome, answer.record.code) == ("skip", "TooLarge")
    assert json.loads(answer.body)["response"]["warnings"] == [
        "too large to be judged as a whole: its pods are judged one by one"
    ]


def test_a_claim_takes_work_for_each_of_its_parts_once():
    webhook = reviewer(WORLD)
    for name, claim in claims(250 * 1024):
        body = review(claim)
        work = work_of(lambda body=body: turn(webhook, "claims", body))
        assert work.lines <= 10 * body.count(b",") + 1000, name
