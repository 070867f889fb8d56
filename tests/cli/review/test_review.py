"""`fairgate review` on the command line: sources, worlds, exit statuses, and robustness against any input."""

import json
import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests import builders as b
from tests.cli.review.sample import OTHERS, POLICY, TRAIN
from tests.examples import examples
from webhook.cli.main import main
from webhook.cli.world_source import default_kubeconfig

POD = OTHERS.partition("---")[0]


@pytest.fixture
def review(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY)
    return lambda *words, stdin=None: CliRunner().invoke(
        main, ["review", "--policy", "policy.yaml", *words], input=stdin
    )


def workloads(result):
    return [(found["source"], found["name"]) for found in json.loads(result.stdout)["workloads"]]


def test_folders_are_read_recursively_in_order_of_name_without_hidden_ones(review):
    for name in ("k/b/z.yml", "k/b/y.json", "k/a.yaml", "k/.git/x.yaml", "k/notes.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(POD if not name.endswith("json") else json.dumps(yaml.safe_load(POD)))
    assert [source for source, _ in workloads(review("k", "-o", "json"))] == ["k/a.yaml", "k/b/y.json", "k/b/z.yml"]


def test_standard_input_is_a_source_like_others(review):
    Path("a.yaml").write_text(POD)
    result = review("a.yaml", "-", "-o", "json", stdin=TRAIN)
    assert workloads(result) == [("a.yaml", "notebook"), ("<stdin>", "resnet|50")]
    assert result.exit_code == 1


def test_pods_of_exempt_namespaces_are_noted_with_what_exempts_them(review):
    result = review("-", stdin=POD.replace("namespace: nlp", "namespace: gpu-operator"))
    assert result.exit_code == 0
    note = "note: Pod gpu-operator/notebook: namespace gpu-operator is exempt by default, as a device operator's"
    assert note in result.stdout


def test_notes_never_fail(review):
    """That a namespace is exempt, and that an object replaces another one."""
    exempt = POD.replace("namespace: nlp", "namespace: gpu-operator")
    result = review("-", "--fail-on", "warning", "--fail-on", "preemptible", stdin=f"{exempt}---\n{exempt}")
    assert (result.exit_code, "replaces the same object" in result.stdout) == (0, True)


def test_each_object_of_a_list_has_its_own_line(review):
    items = "".join(
        f"- {line}\n" if not number else f"  {line}\n" for number, line in enumerate(POD.strip().splitlines())
    )
    listed = f"apiVersion: v1\nkind: List\nitems:\n{items}- {{apiVersion: v1, kind: Pod, metadata: {{name: 5}}}}\n"
    at = listed.splitlines().index("- {apiVersion: v1, kind: Pod, metadata: {name: 5}}") + 1
    result = review("-", "-o", "github", stdin=listed)
    assert f"::error file=<stdin>,line={at},title=Unreadable::metadata.name is 5; expected text" in result.stdout


@pytest.mark.parametrize("kind", ["missing", "dangling", "pipe"])
def test_an_unreadable_file_is_reported_and_the_rest_is_reviewed(review, kind):
    Path("k").mkdir()
    if kind == "dangling":
        Path("k/f.yaml").symlink_to("nowhere")
    elif kind == "pipe":
        os.mkfifo("k/f.yaml")
    Path("k/a.yaml").write_text(POD)
    result = review("k", *(["k/f.yaml"] if kind == "missing" else []))
    assert result.exit_code == 2
    assert "k/f.yaml:1: error: cannot be read:" in result.stdout
    assert "admitted  Pod nlp/notebook" in result.stdout


def test_a_pipe_of_a_shell_is_read(review):
    reader, writer = os.pipe()
    os.write(writer, POD.encode())
    os.close(writer)
    assert workloads(review(f"/dev/fd/{reader}", "-o", "json")) == [(f"/dev/fd/{reader}", "notebook")]
    os.close(reader)


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["--world", "w.yaml", "--cluster"], "exclude each other"),
        (["--kubeconfig", "k"], "--kubeconfig and --context need --cluster"),
        (["-o", "xml"], "expected FORMAT or FORMAT=FILE"),
        (["-o", "json="], "expected FORMAT or FORMAT=FILE"),
        (["-o", "review", "-o", "json"], "-o review cannot be combined"),
        (["-o", "json", "--patch"], "--patch needs -o table or -o markdown"),
        (["--world", "gone.yaml"], "gone.yaml: cannot be read"),
        (["--world", "policy.yaml"], "expected one of v1 Node"),
        (["--policy", "gone"], "No such file or directory"),
        (["-o", "json=gone/out.json"], "gone/out.json: cannot be written"),
        (["--cluster", "--kubeconfig", "gone"], "kubeconfig gone does not exist"),
    ],
)
def test_errors_are_reported_with_exit_status_2(review, words, want):
    result = review(*words, "-", stdin=POD)
    assert result.exit_code == 2
    assert want in result.stderr


def test_every_problem_of_an_invalid_policy_is_reported(review):
    Path("policy.yaml").write_text("nonsense: 1\nmore: 2\n")
    result = review("-", stdin=POD)
    assert result.exit_code == 2
    assert "nonsense" in result.stderr
    assert "more" in result.stderr


@pytest.mark.parametrize(
    ("manifests", "want"),
    [
        (POD, 0),
        ("", 0),
        (TRAIN, 1),
        ("x: [", 2),
        (f"{TRAIN}---\nx: [", 1),
        (f"{POD}---\nx: [", 2),
    ],
    ids=["admitted", "nothing", "refused", "broken", "refused and broken", "admitted and broken"],
)
def test_the_exit_status(review, manifests, want):
    assert review("-", stdin=manifests).exit_code == want


UNKNOWN = """\
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: s, namespace: vision}
spec: {template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
"""


@pytest.mark.parametrize(
    ("manifests", "want"),
    [(UNKNOWN, 0), (f"{UNKNOWN}---\n{TRAIN}", 1), (f"{UNKNOWN}---\nx: [", 2)],
    ids=["alone", "beside what is refused", "beside what is broken"],
)
def test_what_cannot_be_evaluated_is_a_warning_where_it_is_allowed(review, manifests, want):
    assert review("-", stdin=manifests).exit_code in (1, 2)
    result = review("--allow", "unknown", "-o", "github", "-", stdin=manifests)
    assert result.exit_code == want
    assert "::warning" in result.stdout


def test_a_review_is_answered_as_the_webhooks_would(review):
    def request(gpus):
        pod = yaml.safe_load(POD)
        pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = gpus
        request = {"uid": f"u{gpus}", "operation": "CREATE", "namespace": "nlp", "object": pod}
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    stdin = "\n---\n".join(json.dumps(request(gpus)) for gpus in (6, 3))
    result = review("-", "-o", "review", stdin=stdin)
    first, second = (json.loads(line)["response"] for line in result.stdout.splitlines())
    assert (first["uid"], first["allowed"], first["patchType"]) == ("u6", True, "JSONPatch")
    assert (second["uid"], second["allowed"], second["status"]["code"]) == ("u3", False, 403)
    assert "requested 3, limit 8, used 6" in second["status"]["message"]
    assert result.exit_code == 1


def test_a_review_of_a_workload_is_answered_with_its_warning_and_reviewed_by_its_pods(review):
    job = yaml.safe_load(TRAIN)
    request = {
        "uid": "u",
        "operation": "CREATE",
        "namespace": "vision",
        "userInfo": {"username": "alice"},
        "object": job,
    }
    stdin = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    [answer] = map(json.loads, review("-", "-o", "review", stdin=stdin).stdout.splitlines())
    assert answer["response"]["allowed"]
    assert "needs 24 GPUs, team vision's limit is 20" in answer["response"]["warnings"][0]
    printed = json.loads(review("-", "-o", "json", stdin=stdin).stdout)
    assert [(pods["count"], pods["outcome"]) for pods in printed["workloads"][0]["pods"]] == [
        (2, "admitted"),
        (3, "admitted"),
        (1, "refused"),
    ]


def test_other_objects_have_no_answer(review):
    broken = "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nrequest: {}\n"
    result = review("-", "-o", "review", stdin=f"{POD}---\n{broken}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "<stdin>:1: not an AdmissionReview" in result.stderr
    assert (
        "<stdin>:6: not a valid AdmissionReview of a pod: request: object missing required field operation"
        in result.stderr
    )


def test_the_world_and_its_age_are_printed(review):
    Path("w.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n0}\n")
    os.utime("w.yaml", (0, 0))
    result = review("--world", "w.yaml", "-", stdin=POD)
    assert "reviewed against world w.yaml, 20" in result.stdout
    assert "d old: 1 node, 0 pods" in result.stdout
    assert "reviewed against no world" in review("-", stdin=POD).stdout


def test_the_kubeconfig_is_found_as_kubectl_finds_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/gone:{tmp_path}/mine")
    assert default_kubeconfig() is None
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").touch()
    assert default_kubeconfig() == tmp_path / ".kube" / "config"
    (tmp_path / "mine").touch()
    assert default_kubeconfig() == tmp_path / "mine"


SCALARS = (
    st.none() | st.booleans() | st.integers(-2, 10**7) | st.text(max_size=8) | st.sampled_from(["500m", "8", "1e3"])
)
KEYS = st.sampled_from(
    [
        "apiVersion",
        "kind",
        "metadata",
        "name",
        "namespace",
        "spec",
        "template",
        "containers",
        "items",
        "request",
        "object",
    ]
) | st.text(max_size=4)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))
PATHS = [
    ("kind",),
    ("metadata",),
    ("metadata", "name"),
    ("spec",),
    ("spec", "pytorchReplicaSpecs"),
    ("spec", "pytorchReplicaSpecs", "Worker"),
    ("spec", "pytorchReplicaSpecs", "Worker", "replicas"),
    ("spec", "pytorchReplicaSpecs", "Worker", "template", "metadata"),
    ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec"),
    ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec", "containers"),
    ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec", "affinity"),
    ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec", "containers", 0, "resources"),
]


def changed(path, value):
    document = yaml.safe_load(TRAIN)
    holder = document
    for step in path[:-1]:
        holder = holder[step] if isinstance(holder, list) else holder.setdefault(step, {})
    holder[path[-1]] = value
    return document


@examples(50)
@given(
    st.lists(st.builds(changed, st.sampled_from(PATHS), VALUES) | VALUES, min_size=1, max_size=3),
    st.sampled_from(["json", "table", "sarif", "junit", "markdown", "review"]),
)
def test_any_documents_are_reviewed(review, documents, form):
    result = review("-", "-o", form, stdin=yaml.safe_dump_all(documents, allow_unicode=True))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 1, 2)
    if form in ("json", "sarif"):
        json.loads(result.stdout)


@examples(40)
@given(st.binary(max_size=300))
def test_any_bytes_are_reviewed(review, content):
    result = review("-", stdin=content)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 2)


@pytest.mark.parametrize(
    ("resource", "hint"), [("nvidia.com/gpus", "did you mean nvidia.com/gpu? "), ("example.com/my-gpu", "")]
)
def test_an_unknown_gpu_resource_is_reported(review, resource, hint):
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "vision"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {resource: 1}}}]},
    }
    result = review("-", stdin=json.dumps(manifest))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[1].split()[:4] == ["refused", "Pod", "vision/p", "1"]
    assert lines[1].split()[4:6] == ["?", "?"], "its GPU count is unknown"
    assert f"{resource} looks like a GPU, and policy does not say how much of one it is; {hint}" in result.stdout
    assert "1 GPU workload: 1 refused; 0 GPUs requested" in result.stdout


def test_an_object_that_is_too_large_is_reported_and_the_rest_is_reviewed(review):
    value, inserted = "x" * 50_000, "{{workflow.parameters.p}}" * 1000
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "w", "namespace": "nlp"},
        "spec": {
            "entrypoint": "main",
            "arguments": {"parameters": [{"name": "p", "value": value}]},
            "templates": [{"name": "main", "container": {"resources": {"limits": {"nvidia.com/gpu": inserted}}}}],
        },
    }
    Path("w.json").write_text(json.dumps(workflow))
    Path("a.yaml").write_text(POD)
    result = review("w.json", "a.yaml")
    assert result.exit_code == 2
    assert "too large to be judged as a whole: its pods are judged one by one (TooLarge)" in " ".join(
        result.stdout.split()
    )
    assert "admitted  Pod nlp/notebook" in result.stdout


@pytest.mark.parametrize("mode", [5, [], {}, None, True])
def test_an_annotation_of_another_type_ends_no_review(review, mode):
    main = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    serving = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "it", "namespace": "nlp", "annotations": {"serving.kserve.io/deploymentMode": mode}},
        "spec": {"predictor": {"minReplicas": 2, "containers": [main]}},
    }
    Path("s.json").write_text(json.dumps(serving))
    result = review("s.json", "-o", "json")
    assert result.exit_code == 2
    [found] = json.loads(result.stdout)["workloads"]
    assert found["outcome"] == "unknown"


def test_a_job_without_a_model_is_warned_where_nodes_differ(review):
    nodes = [b.node("a", gpus=8, model="A100"), b.node("t", gpus=8, model="Tesla-T4")]
    Path("world.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    job = b.pod("x", namespace="nlp", gpus=1)
    spec = {"template": {"spec": job["spec"] | {"restartPolicy": "Never"}}}
    metadata = {"name": "train", "namespace": "nlp"}
    Path("job.json").write_text(
        json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    )
    shown = review("job.json", "--world", "world.json").stdout
    assert shown.count("it asks for no GPU model and may run on any of A100, Tesla-T4") == 1
    assert "AnyModel" not in review("job.json").stdout, "without a world no node is known"
