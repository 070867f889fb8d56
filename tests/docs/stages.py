"""What the reader of each page has before its first command: nodes, a cluster in use, manifests."""

import json
import shutil
from functools import partial

from tests import builders
from tests.addons.history import recorded
from tests.builders import Json
from tests.cli import sample_world
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.commands import CONTROLLER_MANAGER
from tests.control_plane.objects import node, pod, pod_spec
from tests.control_plane.workbench import create_pod, make_namespace, make_nodes, wait_bound, wait_for
from tests.docs import pages
from tests.docs.walk import Reader
from tests.scenarios.uninstalling import leave_traces
from webhook.kube.ledger import reports
from webhook.kube.ledger.reports import PolicyReport, report_crd
from webhook.policy.build import published
from webhook.policy.documents import read_files
from webhook.policy.watch import load

INSTALL = pages.ROOT / "docs" / "tasks" / "install.md"
SERVED = pages.ROOT / "tests" / "docs" / "served.md"
TEAMS = """apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - name: vision
    namespaces: [vision, "vision-*"]
    gpus: {guaranteed: 16, limit: 20}
  - name: nlp
    namespaces: [nlp]
    gpus: {guaranteed: 20, limit: 40}
"""
POOLS = """apiVersion: fairgate.dev/v1alpha1
kind: Policy
pools:
  - {name: all, nodeSelector: {kubernetes.io/os: linux}}
"""
CONTAINER = """containers:
        - name: main
          resources:
            requests: {{cpu: "4", memory: 10Gi}}
            limits:
              nvidia.com/gpu: {gpus}
"""
TRAIN = f"""apiVersion: batch/v1
kind: Job
metadata:
  name: resnet50
  namespace: vision
spec:
  parallelism: {{pods}}
  template:
    spec:
      restartPolicy: Never
      {CONTAINER}"""
SERVE = f"""apiVersion: apps/v1
kind: Deployment
metadata: {{{{name: serve, namespace: vision}}}}
spec:
  replicas: 4
  template:
    metadata: {{{{labels: {{{{app: serve}}}}}}}}
    spec:
      {CONTAINER}"""
NOTEBOOK = """apiVersion: v1
kind: Pod
metadata: {name: notebook, namespace: nlp}
spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]}
"""
KUSTOMIZATION = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [{}]\n"


def _nodes(reader: Reader, count: int = 4) -> None:
    """Nodes of ten GPUs."""
    make_nodes(reader.cluster, count)


def _own_policies(reader: Reader) -> None:
    """A clone's folder of sample policies."""
    shutil.copytree(pages.ROOT / "policies" / "default", reader.folder / "policies" / "default")


def _served(reader: Reader) -> None:
    """Fairgate as a process beside the cluster, and a namespace of a team."""
    _nodes(reader, 2)
    reader.follow(SERVED)
    make_namespace(reader.cluster, "vision")


def _cluster_in_use(reader: Reader) -> None:
    """The cluster of the golden files, with its policy, an edit of it and a manifest that is too large."""
    for team in ("nlp", "serving", "vision"):
        make_namespace(reader.cluster, team)
    found = sample_world.objects()
    _make_nodes(reader.cluster, *(each for each in found if each["kind"] == "Node"))
    reader.cluster.pause(CONTROLLER_MANAGER)  # the Job that owns the pods does not exist: it would collect them
    pods = (each for each in found if each["kind"] == "Pod")
    # Those on nodes first, or others would get their room. Then by name, as pods of the same age are judged, so the
    # order does not depend on whether two of them were created within one second.
    for made in sorted(pods, key=lambda each: ("nodeName" not in each["spec"], each["metadata"]["name"])):
        create_pod(reader.cluster, made["metadata"]["namespace"], made)
    reader.write("policy/teams.yaml", sample_world.POLICY)
    edited = sample_world.POLICY.replace("gpus: {guaranteed: 9, limit: 20}", "gpus: {guaranteed: 3, limit: 9}")
    reader.write("new/teams.yaml", edited)
    reader.write("train.yaml", TRAIN.format(pods=3, gpus=8))


def _make_nodes(cluster: ControlPlane, *nodes: Json) -> None:
    for made in nodes:
        cluster.api.create("/api/v1/nodes", made)

    def are_known_ready() -> bool:
        keys = {
            taint["key"] for found in cluster.api.list("/api/v1/nodes") for taint in found["spec"].get("taints", ())
        }
        return keys <= {"node.kubernetes.io/unschedulable"}

    wait_for(cluster, are_known_ready, what="the controller-manager has seen that the nodes are ready")


def _manifests(reader: Reader) -> None:
    """A repository with a policy, manifests, a chart and an overlay."""
    reader.write("policy/teams.yaml", TEAMS)
    reader.write("k8s/notebook.yaml", NOTEBOOK)
    reader.write("k8s/serve.yaml", SERVE.format(gpus=8))
    _chart_and_overlay(reader)


def _chart_and_overlay(reader: Reader) -> None:
    train = TRAIN.format(pods=1, gpus=4)
    reader.write("charts/train/Chart.yaml", "apiVersion: v2\nname: train\nversion: 1.0.0\n")
    reader.write("charts/train/templates/job.yaml", train)
    reader.write("overlays/prod/kustomization.yaml", KUSTOMIZATION.format("job.yaml"))
    reader.write("overlays/prod/job.yaml", train)


def _history(reader: Reader) -> None:
    """A recorded history, and an edit of its policy."""
    shutil.copy(pages.ROOT / "tests" / "addons" / "history" / "kept" / "format-1.db", reader.folder / "history.db")
    reader.write("policies.new/teams.yaml", recorded.POLICY.replace("limit: 16", "limit: 8"))


def _everything(reader: Reader) -> None:
    """What the examples of the commands need: a cluster with a pod, a repository with history, a world, a review."""
    make_nodes(reader.cluster, 4, prefix="gpu")
    namespace = make_namespace(reader.cluster, "vision")
    create_pod(reader.cluster, namespace, pod("train-0", gpus=2))
    wait_bound(reader.cluster, namespace, "train-0")
    labels = {"app": "serve"}
    serve = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(gpus=1)},
        },
    }
    reader.cluster.api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", serve)
    _history(reader)
    _own_policies(reader)
    for folder in ("policies", "policies.old", "policies.new", "clusters/one/policies"):
        reader.write(f"{folder}/teams.yaml", TEAMS)
    reader.write("team.yaml", TEAMS)
    reader.write("pools.yaml", POOLS)
    reader.write("nodes.csv", "name,gpus,model,count\nh100,8,NVIDIA-H100-80GB-HBM3,5\n")
    reader.write("tasks.csv", "name,team,gpus,created,seconds\ntrain,vision,8,0,3600\nserve,nlp,4,60,600\n")
    _chart_and_overlay(reader)
    reader.write("k8s/job.yaml", TRAIN.format(pods=1, gpus=4))
    reader.write("train.yaml", TRAIN.format(pods=1, gpus=4))
    reader.write("kustomization.yaml", KUSTOMIZATION.format("train.yaml"))
    refused = {"event": "decision", "time": "2026-11-21T14:07:35.523Z", "outcome": "deny", "code": "TeamLimitExceeded"}
    reader.write("server-1.log", json.dumps(refused))
    reader.write("server-2.log", "")
    reader.write("review.json", builders.review(builders.pod(gpus=1)).decode())
    listed = reader.cluster.kubectl.json("get", "nodes,pods,namespaces,priorityclasses", "-A")
    reader.write("world.yaml", json.dumps(listed))
    _published(reader)
    for command in (
        "git init --quiet --initial-branch main && git add policies",
        "git -c user.name=reader -c user.email=reader@example.org commit --quiet --message 'Our policies'",
        "git checkout --quiet -b edit",
        "fairgate serve --policy policies/default --world world.yaml --listen 127.0.0.1:8443 --certs certs.d",
    ):
        reader.do(pages.Step(command, "", 0, 0))


def _published(reader: Reader) -> None:
    """The policy in force, as a server publishes it: the examples of the page name none."""
    _define_reports(reader.cluster)
    policy = load(reader.folder / "policies")
    report = PolicyReport(policy.hash, policy.enforce.value, published(read_files(reader.folder / "policies")))
    made = json.loads(reports.new_report(reports.POLICY, reports.report_patch(reports.POLICY, report)))
    reader.cluster.api.create(reports.PATH, made)


def _define_reports(cluster: ControlPlane) -> None:
    cluster.kubectl.apply(report_crd())
    wait_for(cluster, lambda: cluster.api.exists(reports.PATH), what="the API server serves Reports")


def _kind(reader: Reader, gpus: int = 0) -> None:
    """A clone of the repository, and kind's node."""
    (reader.folder / "fairgate").symlink_to(pages.ROOT)
    _make_nodes(reader.cluster, node("fairgate-control-plane", gpus=gpus))


def _chart_and_nodes(reader: Reader) -> None:
    _nodes(reader)
    _chart(reader)


def _chart(reader: Reader) -> None:
    """The chart, and a policy about none of the namespaces that are in use: the pods there keep their tiers."""
    (reader.folder / "charts").symlink_to(pages.ROOT / "charts")
    shutil.copy(pages.ROOT / "policies" / "default" / "policy.yaml", reader.folder / "policy.yaml")


def _page(reader: Reader) -> None:
    """A cluster with a published policy, a world file of it, and Fairgate installed by the chart's commands."""
    _installed(reader)
    listed = reader.cluster.kubectl.json("get", "nodes,pods,namespaces,priorityclasses", "-A")
    reader.write("world.yaml", json.dumps(listed))
    reader.write("policy/teams.yaml", TEAMS)


def _installed(reader: Reader) -> None:
    """Fairgate in the cluster, as far as that page has installed it."""
    _kind(reader, gpus=8)
    reader.follow(INSTALL, until="### The report")


def _crashed(reader: Reader) -> None:
    """Pods in line and a held node, webhooks and guards, and no process of Fairgate."""
    [node] = make_nodes(reader.cluster, 1)
    leave_traces(reader.cluster, make_namespace(reader.cluster), reader.folder / "policy", node=node)


def _quotas(reader: Reader) -> None:
    """A node of eight GPUs, two namespaces with a quota of four, one of which is used up."""
    (reader.folder / "fairgate").symlink_to(pages.ROOT)
    make_nodes(reader.cluster, 1, gpus=8)
    for team in ("vision", "nlp"):
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}}
        hard = {"requests.nvidia.com/gpu": "4", "pods": "100"}
        make_namespace(reader.cluster, team)
        reader.cluster.api.create(f"/api/v1/namespaces/{team}/resourcequotas", {**quota, "spec": {"hard": hard}})
    for name in ("train-0", "train-1"):
        create_pod(reader.cluster, "vision", pod(name, gpus=2))


STAGES = {
    "charts/fairgate/README.md": _chart_and_nodes,
    "docs/tasks/ci.md": _manifests,
    "docs/reference/cli.md": _everything,
    "docs/tasks/certificates.md": _installed,
    "docs/reference/guards.md": _nodes,
    "docs/tasks/install.md": partial(_kind, gpus=8),
    "docs/tasks/looking.md": _cluster_in_use,
    "docs/tasks/migration.md": _quotas,
    "docs/tasks/operate.md": _installed,
    "docs/tasks/page.md": _page,
    "docs/tasks/quickstart.md": _kind,
    "docs/concepts/reclaim.md": _own_policies,
    "docs/reference/rights.md": _nodes,
    "docs/tasks/runbooks.md": _crashed,
    "docs/tasks/simulation.md": _history,
    "docs/tasks/usage.md": _history,
    "docs/tasks/users.md": _served,
    "docs/tasks/workloads.md": _served,
    "policies/README.md": _own_policies,
}
