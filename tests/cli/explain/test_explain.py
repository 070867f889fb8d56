"""`fairgate explain`: its output for existing pods and for manifests, and its exit statuses."""

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
from webhook.kube.objects import keys

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
    """The sample's pods, one of them with the decision at its creation."""
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
    *explained, seen = result.stdout.splitlines()
    golden.check(GOLDEN / f"{name}.txt", "\n".join(explained) + "\n")
    assert seen.startswith("world ")


@pytest.mark.parametrize(
    "words", [["pod", "train-0", "-n", "vision"], ["vision/train-0"], ["vision/train-0", "-n", "nlp"]]
)
def test_a_pod_is_named_as_kubectl_takes_it_and_as_other_commands_print_it(run, words):
    want = run("pod/train-0", "-n", "vision")
    assert (want.exit_code, run(*words).stdout) == (0, want.stdout)


def test_a_file_that_is_missing_is_no_pod_and_more_than_one_name_is_an_error(run):
    assert "manifests/train.yaml" in run("manifests/train.yaml").stderr
    assert "one thing at a time" in run("pod", "train-0", "train-1").stderr


def test_a_pod_that_was_placed_in_one_rack_says_in_which_and_why(run, tmp_path):
    found = decided()
    pod = next(each for each in found if each["metadata"]["name"] == "train-0")
    mark = json.loads(pod["metadata"]["annotations"][keys.DECISION])
    mark |= {"domain": "rack=r2", "why": "has room for 70 of these pods\x1b[31m"}
    pod["metadata"]["annotations"][keys.DECISION] = json.dumps(mark)
    sample_world.write(tmp_path, found)
    text = " ".join(run("pod/train-0", "-n", "vision").stdout.split())
    assert "in rack=r2 with its gang (has room for 70 of these pods\\x1b[31m). Admitted" in text


def test_a_gang_that_asks_for_one_domain_says_what_each_has_room_for(run, tmp_path):
    found = [*sample_world.objects()]
    for each in found:
        if each["kind"] == "Node":
            each["metadata"].setdefault("labels", {})["rack"] = each["metadata"]["name"]
    sample_world.write(tmp_path, found)
    member = b.pod(
        "m",
        namespace="vision",
        labels={"kueue.x-k8s.io/pod-group-name": "g"},
        annotations={"fairgate.dev/topology": "rack"},
        containers=[b.container(gpus=1, **SIZE)],
    )
    text = run("-", input=yaml.safe_dump(member)).stdout
    assert "its gang requires one rack for 1 pod" in text
    [explained] = json.loads(run("-", "-o", "json", input=yaml.safe_dump(member)).stdout)
    assert {each["level"] for each in explained["domains"]} == {"rack"}
    assert explained["domains"][0]["enough"]


def test_a_gang_of_a_manifest_is_judged_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nodes = [b.node(f"{rack}-{number}", gpus=8, labels={"rack": rack}) for rack in "ab" for number in range(2)]
    Path("world.json").write_text(json.dumps({"kind": "List", "items": nodes}))
    team = "{name: vision, namespaces: [vision], gpus: {guaranteed: 16, limit: 32}, onLimit: queue}"
    Path("policy").mkdir()
    Path("policy/p.yaml").write_text(f"apiVersion: fairgate.dev/v1alpha1\nkind: Policy\nteams: [{team}]\n")

    def outcome(parallelism):
        spec = JOB["spec"] | {"parallelism": parallelism, "completions": parallelism}
        marked = JOB | {"metadata": JOB["metadata"] | {"annotations": {"fairgate.dev/topology": "rack"}}, "spec": spec}
        Path("job.json").write_text(json.dumps(marked))
        result = CliRunner().invoke(main, ["explain", "--policy", "policy", "--world", "world.json", "job.json"])
        return result.exit_code, result.stdout

    status, text = outcome(2)
    assert status == 0, text
    assert "its gang requires one rack for 2 pods" in text
    assert "rack: 2 of 2 have room for all: a 2, b 2" in text
    assert "chosen: rack=a, which has room for 2 of these pods, 2 start together" in text
    assert "admitted as guaranteed, sent to a-0" in text
    status, text = outcome(3)
    assert status == 1
    assert "rack: 0 of 2 have room for all: a 2, b 2" in text
    assert "holds 2 of them when empty: it can never start whole" in " ".join(text.split())


def test_every_role_is_explained_and_the_data_agree(run):
    documents = yaml.safe_dump_all([JOB, POD])
    explained = json.loads(run("-", "-o", "json", input=documents).stdout)
    assert explained == yaml.safe_load(run("-", "-o", "yaml", input=documents).stdout)
    job, pod = msgspec.convert(explained, list[ExplanationReport])
    assert (job.subject, job.count, job.outcome, job.team) == ("Job vision/resnet50", 3, "refused", "vision")
    assert [limit.holds for limit in job.limits] == [True, False, False]
    assert job.smaller == {b.GPU: "3"}
    assert (pod.outcome, pod.tier, pod.nodes[0]) == ("admitted", "preemptible", "gpu-10")
    best = pod.pools[0].best[0]
    assert best.name == "gpu-10"
    assert best.cost == pytest.approx(best.useless + best.left_over, abs=0.002)


def test_an_existing_pod_is_removed_before_it_is_decided_again(run):
    [explained] = json.loads(run("pod/llm", "-n", "nlp", "-o", "json").stdout)
    team = next(limit for limit in explained["limits"] if limit["of"] == "team nlp")
    assert explained["outcome"] == "admitted"
    assert (team["taken"], team["withThePod"]) == ("327/28", "551/28"), "its 8 GPUs count once"
    holders = ["nlp/Pod/next", "nlp/Job/sweep", "nlp/Pod/half", "nlp/Pod/chat"]
    assert [holder["name"] for holder in explained["holders"]] == holders


def queueing(folder, *, limit, departments="", department=""):
    """The options for a policy whose pods wait in line."""
    of = f", department: {department}" if department else ""
    teams = [
        f"{{name: {name}, namespaces: [{name}], gpus: {{guaranteed: 4, limit: {limit}}}{of}}}"
        for name in ("nlp", "vision")
    ]
    text = f"teams: [{', '.join(teams)}]\ndefaults: {{onLimit: queue, onNoRoom: queue}}\n{departments}"
    (folder / "queue.yaml").write_text(f"apiVersion: fairgate.dev/v1alpha1\nkind: Policy\n{text}")
    return ["--policy", str(folder / "queue.yaml"), "--world", str(folder / "world.json")]


def in_line(name, *, created):
    made = b.pod(name, labels={"fairgate.dev/team": "vision"}, schedulingGates=[{"name": "fairgate.dev/queue"}], gpus=1)
    made["metadata"]["creationTimestamp"] = created
    return made


def runs(name, *, gpus, namespace="vision", tier="guaranteed"):
    made = sample_world.pod(name, gpus=gpus, node="gpu-1", namespace=namespace, tier=tier)
    made["status"] = {"phase": "Running", "startTime": "2026-11-25T10:00:00Z"}
    return made


def test_what_a_running_pod_is_comes_first_and_it_is_never_held_up(tmp_path):
    sample_world.write(tmp_path, [b.node("gpu-1", gpus=8), runs("a", gpus=1), runs("b", gpus=1)])
    words = ["explain", *queueing(tmp_path, limit=0).copy(), "pod/a", "-n", "vision"]
    (tmp_path / "queue.yaml").write_text(
        (tmp_path / "queue.yaml").read_text().replace("guaranteed: 4", "guaranteed: 0")
    )
    result = CliRunner().invoke(main, words)
    assert result.stdout.splitlines()[:3] == [
        "Pod vision/a",
        "It runs on gpu-1, since 2026-11-25T10:00:00Z. It bypassed Fairgate.",
        "If it came now, without itself:",
    ]
    assert result.exit_code == 0, "what it would get if it came now is no reason to worry"
    [explained] = json.loads(CliRunner().invoke(main, [*words, "-o", "json"]).stdout)
    now = (explained["state"], explained["node"], explained["since"])
    assert now == ("running", "gpu-1", "2026-11-25T10:00:00Z")
    assert explained["outcome"] == "refused"


def test_the_outcome_of_a_pod_in_line_is_that_of_its_line(tmp_path):
    line = [in_line(name, created=f"2026-11-25T1{n}:00:00Z") for n, name in enumerate(("first", "second"))]
    sample_world.write(tmp_path, [b.node("gpu-1", gpus=8), *line])
    for name, cause in (("first", "it starts within seconds"), ("second", "1 pod of team vision ahead of it")):
        result = CliRunner().invoke(
            main, ["explain", *queueing(tmp_path, limit=8), f"pod/{name}", "-n", "vision", "-o", "json"]
        )
        [explained] = json.loads(result.stdout)
        assert (result.exit_code, explained["state"], explained["outcome"]) == (1, "queued", "queued")
        [reason] = explained["reasons"]
        assert reason["message"] == f"waits: {explained['line']['cause']}"
        assert cause in reason["message"]


def test_the_holders_are_those_of_the_limit_in_the_way(tmp_path):
    pods = [runs("mine", gpus=1, namespace="nlp"), runs("other", gpus=5)]
    sample_world.write(tmp_path, [b.node("gpu-1", gpus=8), *pods])
    lab = "departments: [{name: lab, gpus: {guaranteed: 8, limit: 8}}]"
    options = queueing(tmp_path, limit=8, departments=lab, department="lab")
    for gpus, want in ((3, {"team vision": "5", "team nlp": "1"}), (2, {"nlp/Pod/mine": "1"})):
        given = json.dumps(b.pod("p", namespace="nlp", gpus=gpus))
        [explained] = json.loads(CliRunner().invoke(main, ["explain", *options, "-", "-o", "json"], input=given).stdout)
        assert {each["name"]: each["gpus"] for each in explained["holders"]} == want


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
            id="a kind that is not described",
        ),
        pytest.param(["rs/web", "-n", "vision"], "", "a world file holds no replicasets", id="a workload in a file"),
        pytest.param(["pod/llm", "-n", "nlp", "--node", "gone"], "", "there is no node gone", id="no node"),
    ],
)
def test_a_subject_that_cannot_be_explained_has_a_reason(run, words, given, want):
    result = run(*words, input=given)
    assert result.exit_code == 2
    assert want in result.stderr


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(b.pod("p", namespace="unowned", gpus=1), "UnknownTeam", id="a namespace of no team"),
        pytest.param(
            b.pod("p", namespace="vision", containers=[b.container(gpus=1, resource="acme.com/gpu")]),
            "UnknownGpuResource",
            id="a resource that policy does not know",
        ),
        pytest.param(b.pod("p", namespace="vision", gpus="0.5"), "InvalidRequest", id="half a device"),
    ],
)
def test_every_refusal_ends_with_the_status_of_refusals_as_review_does(run, tmp_path, pod, want):
    result = run("-", input=json.dumps(pod))
    assert (result.exit_code, result.stderr) == (1, "")
    assert "outcome  refused" in result.stdout
    assert f"({want})" in result.stdout
    [explained] = json.loads(run("-", "-o", "json", input=json.dumps(pod)).stdout)
    assert (explained["outcome"], explained["reasons"][0]["code"]) == ("refused", want)
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    options = ["--policy", str(tmp_path / "policy.yaml"), "--world", str(tmp_path / "world.json")]
    assert CliRunner().invoke(main, ["review", *options, str(tmp_path / "pod.json")]).exit_code == result.exit_code


def test_a_pod_that_is_not_judged_is_neither_refused_nor_waiting(run):
    assert run("-", input=json.dumps(b.pod("p", namespace="vision", gpus=None))).exit_code == 0


def test_one_node_lists_its_obstacles(run):
    shown = run("pod/next", "-n", "nlp", "--node", "gpu-3")
    assert "gpu-3: the pod asks for nvidia.com/gpu 8, 0 of 8 are free" in shown.stdout
    [explained] = json.loads(run("pod/next", "-n", "nlp", "--node", "gpu-4", "-o", "json").stdout)
    assert explained["pools"][0]["node"] == {"name": "gpu-4", "obstacles": ["it is cordoned"], "place": None}
    free = run("pod/llm", "-n", "nlp", "--node", "gpu-3")
    assert "gpu-3: has room, and is choice number 1" in free.stdout


def test_nodes_are_named_up_to_ten_in_text_and_all_in_data(tmp_path):
    sample_world.write(tmp_path)
    found = [b.node(f"n-{number}", gpus=2) for number in range(12)]
    (tmp_path / "few.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    words = ["explain", "--policy", str(tmp_path / "policy.yaml"), "--world", str(tmp_path / "few.json"), "-"]
    given = json.dumps(b.pod("p", namespace="vision", gpus=4))
    shown = CliRunner().invoke(main, words, input=given).stdout
    assert "12: too small even when empty: n-0, n-1, n-2, n-3, n-4, n-5, n-6, n-7, n-8, n-9 and 2 more" in shown
    [explained] = json.loads(CliRunner().invoke(main, [*words, "-o", "json"], input=given).stdout)
    [filtered] = explained["pools"][0]["filtered"]
    assert (filtered["nodes"], filtered["names"]) == (12, [f"n-{number}" for number in range(12)])


def test_the_user_who_applies_it_counts_for_limits_per_user(run):
    explained = json.loads(run("-", "--as", "alice", "-o", "json", input=json.dumps(POD)).stdout)
    assert explained[0]["user"] == "alice"
    assert "user alice in team vision" in [limit["of"] for limit in explained[0]["limits"]]


def test_an_object_without_pods_has_nothing_to_explain(run):
    result = run("-", input="apiVersion: v1\nkind: Service\nmetadata: {name: s}")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1)


def test_an_autoscaler_of_a_world_file_says_how_many_replicas_may_go(run, tmp_path):
    labels = {"fairgate.dev/team": "vision", "fairgate.dev/tier": "preemptible"}
    pods = b.replicas("web", 3, node="gpu-1", labels=labels)
    sample_world.write(tmp_path, [b.node("gpu-1", gpus=8), *pods, b.autoscaler("web", minimum=2)])
    words = ("pod/web-5d8f-0", "-n", "vision")
    assert "Replicas ready: 3, minimum: 2; 1 may be evicted first" in " ".join(run(*words).stdout.split())
    assert json.loads(run(*words, "-o", "json").stdout)[0]["replicas"]["spare"] == 1


def test_a_job_that_another_cluster_runs_is_not_explained_and_says_why(run, tmp_path):
    remote = {**JOB, "spec": {**JOB["spec"], "managedBy": "kueue.x-k8s.io/multikueue"}}
    (tmp_path / "job.json").write_text(json.dumps(remote))
    result = run("job.json")
    assert result.exit_code == 2
    want = (
        "Job vision/resnet50: not judged: spec.managedBy is kueue.x-k8s.io/multikueue, which runs it in another cluster"
    )
    assert want in result.output


def test_pods_whose_anti_affinity_keeps_a_new_one_off_are_named(run, tmp_path):
    from_all = {"topologyKey": "kubernetes.io/os", "labelSelector": {}, "namespaceSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [from_all]}}
    culprit = b.pod("logs", namespace="serving", node="gpu-1", affinity=affinity)
    sample_world.write(tmp_path, [b.node("gpu-1", gpus=8, labels={"kubernetes.io/os": "linux"}), culprit])
    (tmp_path / "pod.json").write_text(json.dumps(POD))
    shown = " ".join(run("pod.json").output.split())
    assert "kept off by required anti-affinity of pod serving/logs (topology key kubernetes.io/os: 1 node)" in shown
    assert "other pods' anti-affinity keeps the pod off the nodes with room" in shown
    [report] = json.loads(run("pod.json", "-o", "json").stdout)
    want = {"namespace": "serving", "name": "logs", "key": "kubernetes.io/os", "nodes": 1}
    assert report["keptOffBy"] == [want]


def test_a_node_whose_devices_are_tainted_says_that_it_is_not_compared(tmp_path):
    driver = "gpu.nvidia.com"
    dra = {"apiVersion": "resource.k8s.io/v1"}
    taints = [{"key": "firmware", "value": "bad", "effect": "NoSchedule"}]
    pool = {"name": "gpu-a", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}", "taints": taints} for number in range(2)]
    request = {"deviceClassName": driver, "count": 1, "tolerations": [{"operator": "Exists"}]}
    selects = {"cel": {"expression": f"device.driver == '{driver}'"}}
    objects = [
        b.node("gpu-a", gpus=0),
        {**dra, "kind": "DeviceClass", "metadata": {"name": driver}, "spec": {"selectors": [selects]}},
        {
            **dra,
            "kind": "ResourceSlice",
            "metadata": {"name": "a"},
            "spec": {"driver": driver, "nodeName": "gpu-a", "pool": pool, "devices": devices},
        },
        {
            **dra,
            "kind": "ResourceClaim",
            "metadata": {"name": "one", "namespace": "vision"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": request}]}},
        },
    ]
    options = sample_world.write(tmp_path, objects)
    claims = [{"name": "g", "resourceClaimName": "one"}]
    asks = b.pod("tolerates", containers=[b.container(gpus=0, **SIZE)], resourceClaims=claims)
    result = CliRunner().invoke(main, ["explain", *options, "-"], input=json.dumps(asks))
    assert "gpu-a  not compared" in result.stdout, result.output
