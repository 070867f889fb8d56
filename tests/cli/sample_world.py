"""A small cluster with every kind of GPU: whole, time-sliced, MIG and shared by memory; three teams."""

import json

from tests import builders as b

POLICY = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - name: nlp
    namespaces: [nlp]
    gpus: {guaranteed: 9, limit: 20}
  - name: serving
    namespaces: [serving]
    gpus: {guaranteed: 2, limit: unlimited}
  - name: vision
    namespaces: [vision]
    gpus: {guaranteed: 12, limit: 24}
    models: {NVIDIA-A100-SXM4-80GB: {guaranteed: 12, limit: 20}}
resources:
  nvidia.com/mig-1g.10gb: {gpus: "1/7"}
  nvidia.com/mig-3g.40gb: {gpus: "3/7"}
  nvidia.com/gpu.shared: {gpus: "1/4"}
"""
MIG, HALF, SHARED = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu.shared"


def pod(name, *, tier="guaranteed", **more):
    namespace = more.setdefault("namespace", "vision")
    labels = {"fairgate.dev/team": namespace, "fairgate.dev/tier": tier}
    decision = json.dumps({"gpus": str(more["gpus"]), "code": "WithinShare", "policy": "p1", "at": "then"})
    return b.pod(
        name,
        labels=labels,
        annotations={"fairgate.dev/decision": decision} | more.pop("annotations", {}),
        containers=[b.container(gpus=more.pop("gpus"), cpu="2", memory="4Gi", resource=more.pop("resource", b.GPU))],
        **more,
    )


def objects():
    """The cluster's objects."""
    mig = b.node("mig-1", gpus=7, resource=MIG, model=b.A100)
    mig["status"]["allocatable"][HALF] = "2"
    job = ("Job", "train")
    return [
        b.node("gpu-1", gpus=8, model=b.A100),
        b.node("gpu-2", gpus=8, model=b.A100),
        b.node("gpu-3", gpus=8, model=b.A100),
        b.node("gpu-4", gpus=8, model=b.A100, is_cordoned=True),
        b.node("gpu-10", gpus=8, model=b.A100),
        mig,
        b.node("t4-1", gpus=16, resource=SHARED, model="Tesla-T4"),
        b.node("cpu-1", gpus=None),
        pod("train-0", gpus=4, node="gpu-1", controller=job),
        pod("train-1", gpus=4, node="gpu-1", controller=job),
        pod("train-2", gpus=4, node="gpu-2", controller=job),
        pod("eval", gpus=4, node="gpu-2", tier="preemptible"),
        pod("slices", gpus=3, resource=MIG, node="mig-1"),
        pod("llm", namespace="nlp", gpus=8, node="gpu-3"),
        pod("sweep-0", namespace="nlp", gpus=2, node="gpu-10", tier="preemptible", controller=("Job", "sweep")),
        pod("sweep-1", namespace="nlp", gpus=1, node="gpu-10", tier="preemptible", controller=("Job", "sweep")),
        pod("half", namespace="nlp", gpus=1, resource=HALF, node="mig-1", tier="preemptible"),
        pod("next", namespace="nlp", gpus=8, tier="preemptible"),
        pod("api-0", namespace="serving", gpus=1, resource=SHARED, node="t4-1"),
        pod("api-1", namespace="serving", gpus=2, resource=SHARED, node="t4-1"),
        pod("chat", namespace="nlp", gpus=1, resource=SHARED, node="t4-1"),
        pod("nightly", namespace="serving", gpus=2, resource=SHARED, node="t4-1", tier="preemptible"),
    ]


def write(folder, found=None):
    """Write policy and world to a folder, and return the options for them."""
    (folder / "policy.yaml").write_text(POLICY)
    listed = {"apiVersion": "v1", "kind": "List", "items": objects() if found is None else found}
    (folder / "world.json").write_text(json.dumps(listed))
    return ["--policy", str(folder / "policy.yaml"), "--world", str(folder / "world.json")]
