"""`fairgate explain`: what is printed of pods that exist and of manifests, and how it ends."""

import json
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from tests import builders as b
from tests.cli import golden, sample_world
from webhook.cli.explain.report import ExplanationReport
from webhook.cli.main import main
from webhook.kube import keys

GOLDEN = Path(__file__).parent / "golden"
SIZE = {"cpu": "4", "memory": "10Gi"}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "resnet50", "namespace": "vision"},
    "spec": {"parallelism": 3, "template": {"spec": {"containers": [b.container(gpus=8, **SIZE)]}}},
}
POD = b.pod("notebook", containers=[b.container(gpus=1, **SIZE)])


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = sample_world.write(tmp_path)
    return lambda *words, **more: CliRunner().invoke(main, ["explain", *options, *words], **more)


def decided():
    """The sample's pods, one of them with the decision that it was admitted by."""
    mark = {
        "demand": {b.GPU: "4"},
        "gpus": "4",
        "mode": "auto",
        "nodes": ["gpu-1", "gpu-2"],
        "code": "WithinShare",
        "policy": "000000000000",
        "at": "2026-11-21T14:07:35Z",
    }
    found = sample_world.objects()
    pod = next(each for each in found if each["metadata"]["name"] == "train-0")
    pod["metadata"]["annotations"] = {keys.DECISION: json.dumps(mark)}
    return found


SHOWN = {
    "manifest-refused": (["job.json"], 1),
    "pod-decided": (["pod/train-0", "-n", "vision"], 0),
    "pod-waiting": (["po/next", "-n", "nlp"], 1),
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_steps(name, run, tmp_path):
    sample_world.write(tmp_path, decided())
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    words, status = SHOWN[name]
    result = run(*words)
    assert result.exit_code == status
    *told, seen = result.stdout.splitlines()
    golden.check(GOLDEN / f"{name}.txt", "\n".join(told) + "\n")
    assert seen.startswith("world ")


def test_every_role_is_explained_and_data_says_the_same(run):
    documents = yaml.safe_dump_all([JOB, POD])
    told = json.loads(run("-", "-o", "json", input=documents).stdout)
    assert told == yaml.safe_load(run("-", "-o", "yaml", input=documents).stdout)
    job, pod = msgspec.convert(told, list[ExplanationReport])
    assert (job.subject, job.count, job.outcome, job.team) == ("Job vision/resnet50", 3, "refused", "vision")
    assert [limit.holds for limit in job.limits] == [True, False, False]
    assert job.smaller == {b.GPU: "3"}
    assert (pod.outcome, pod.tier, pod.nodes[0]) == ("admitted", "preemptible", "gpu-10")
    best = pod.pools[0].best[0]
    assert best.name == "gpu-10"
    assert best.cost == pytest.approx(best.useless + best.left_over, abs=0.002)


def test_a_pod_is_taken_off_before_it_is_judged_again(run):
    [told] = json.loads(run("pod/llm", "-n", "nlp", "-o", "json").stdout)
    team = next(limit for limit in told["limits"] if limit["of"] == "team nlp")
    assert told["outcome"] == "admitted"
    assert "8" not in [holder["gpus"] for holder in told["holders"] if holder["name"].endswith("/llm")]
    assert team["holds"]


@pytest.mark.parametrize(
    ("words", "given", "want"),
    [
        pytest.param(["pod/gone"], "", "there is no pod gone in namespace default; try -n NAMESPACE", id="no pod"),
        pytest.param(["gone.yaml"], "", "gone.yaml: cannot be read: No such file or directory", id="no file"),
        pytest.param(["-"], "a: [", "<stdin>:1: not valid YAML", id="no YAML"),
        pytest.param(
            ["-"],
            "apiVersion: x.io/v1\nkind: New\nspec: {template: {spec: {containers: []}}}",
            "New",
            id="a kind that nobody described",
        ),
        pytest.param(["-"], json.dumps(b.pod("p", gpus="1.5")), "InvalidRequest", id="no pod that the API takes"),
    ],
)
def test_what_cannot_be_explained_says_why(run, words, given, want):
    result = run(*words, input=given)
    assert result.exit_code == 2
    assert want in result.stderr


def test_who_applies_it_counts_for_limits_per_user(run):
    told = json.loads(run("-", "--as", "alice", "-o", "json", input=json.dumps(POD)).stdout)
    assert told[0]["user"] == "alice"
    assert "user alice in team vision" in [limit["of"] for limit in told[0]["limits"]]


def test_an_object_without_pods_has_nothing_to_explain(run):
    result = run("-", input="apiVersion: v1\nkind: Service\nmetadata: {name: s}")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1)
