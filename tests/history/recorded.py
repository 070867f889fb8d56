"""A history of half an hour: two nodes of eight GPUs, two teams, pods that came, waited, ended and were refused.

`python -m tests.history.recorded FILE` writes it: so was tests/history/kept/format-1.db made.
"""

import json
import sys
from pathlib import Path

from tests import builders as b
from tests.history.support import T0, row
from webhook.history.meter import INTERVAL_SECONDS
from webhook.history.store import Batch, HistoryStore, ObjectRow, PodRow, PolicyRow, Trace

UNTIL = T0 + 1800
POLICY = """apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - name: vision
    namespaces: [vision]
    gpus: {guaranteed: 8, limit: 16}
  - name: nlp
    namespaces: [nlp]
    gpus: {guaranteed: 8, limit: 8}
"""


def pod_object(namespace, name, gpus, *, node="", **spec):
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    where = {"nodeName": node} if node else {}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **where, **spec},
    }
    return json.dumps(pod)


def came(namespace, name, gpus, *, at, seconds=600, node="n0"):
    """A pod that was bound at once and ran for so long."""
    begin = T0 + at
    return PodRow(
        f"uid-{name}",
        namespace,
        name,
        team=namespace,
        user="ada",
        tier="guaranteed",
        gpus=float(gpus),
        created=begin,
        bound=begin,
        ended=begin + seconds,
        object=pod_object(namespace, name, gpus, node=node),
    )


def refused(namespace, name, gpus, *, at, times=1):
    return PodRow(
        f"refused/{name}",
        namespace,
        name,
        team=namespace,
        user="bob",
        gpus=float(gpus),
        created=T0 + at,
        ended=T0 + at + 60,
        code="TeamLimitExceeded",
        times=times,
        object=pod_object(namespace, name, gpus),
    )


def replica(workload, name, gpus, *, at):
    """A pod of a Deployment that was bound at once."""
    row = came("vision", name, gpus, at=at)
    made = json.loads(row.object)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{workload}-5d8f", "uid": "r", "controller": True}
    made["metadata"] |= {"ownerReferences": [owner], "labels": {"pod-template-hash": "5d8f"}}
    return row._replace(object=json.dumps(made))


def scaler(workload, *, minimum):
    """What scales a Deployment."""
    made = b.autoscaler(workload, minimum=minimum)
    return ObjectRow(made["kind"], f"vision/{workload}", T0, object=json.dumps(made))


def node(name, gpus=8):
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
    return ObjectRow("Node", name, T0, object=json.dumps(made))


PODS = (
    came("vision", "train-0", 4, at=0),
    came("vision", "train-1", 4, at=10),
    came("vision", "sweep-0", 4, at=20, node="n1")._replace(tier="preemptible"),
    came("nlp", "tune-0", 4, at=700, node="n1"),
    refused("nlp", "large", 16, at=30, times=7),
    refused("nlp", "tune-0", 4, at=650),
)


def write(path, pods=PODS, *, policy=POLICY, objects=None):
    """Write the history to a file."""
    store = HistoryStore(path)
    policies = () if policy is None else (PolicyRow("recorded", T0, policy),)
    trace = Trace(tuple(pods), tuple(objects or (node("n0"), node("n1"))), policies)
    rows = [
        each
        for start in range(T0, UNTIL, INTERVAL_SECONDS)
        for each in (
            row("observed", INTERVAL_SECONDS, start=start),
            row("guaranteed", 8 * INTERVAL_SECONDS, team="vision", user="ada", start=start),
            row("free", 8 * INTERVAL_SECONDS, start=start),
        )
    ]
    rows += [row("refused", 8, team="nlp", user="bob"), row("refused_gpus", 116, team="nlp")]
    store.write(Batch(rows, UNTIL, trace))
    store.close()
    return path


if __name__ == "__main__":
    write(Path(sys.argv[1]))
