"""The cluster of the pictures and of the browser's tests: three models, four teams, two zones, a line."""

import random

from tests import builders as b
from tests.addons.page.support.pages import decided, named, policy_of, waiting
from tests.cli.sample_world import SHARED

POLICY = """
apiVersion: fairgate.dev/v1alpha1
kind: Policy
departments:
  - {name: research, gpus: {guaranteed: 150, limit: 190}}
teams:
  - {name: vision, namespaces: [vision], department: research, gpus: {guaranteed: 72, limit: 112}}
  - name: nlp
    namespaces: [nlp]
    department: research
    gpus: {guaranteed: 36, limit: 48}
    onLimit: queue
    onNoRoom: queue
  - {name: speech, namespaces: [speech], gpus: {guaranteed: 24, limit: 48}}
  - {name: serving, namespaces: [serving], gpus: {guaranteed: 12, limit: 24}}
pools:
  - {name: a100, nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
  - {name: h100, nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
  - {name: shared, nodeSelector: {nvidia.com/gpu.product: Tesla-T4}}
resources:
  nvidia.com/gpu.shared: {gpus: "1/4"}
"""
H100 = "NVIDIA-H100-80GB-HBM3"
KINDS = {"vision": "train", "nlp": "llm", "speech": "asr", "serving": "api"}


def cluster_policy():
    return policy_of(POLICY)


def cluster_objects():
    """The objects, the same in every run."""
    rolls = random.Random(7)
    objects = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in KINDS]
    for number in range(24):
        model, prefix = (b.A100, "a100") if number < 16 else (H100, "h100")
        name = f"{prefix}-{number % 16}"
        objects.append(_node(name, number, model))
        objects += _pods(name, number, rolls, most=4 if number in (9, 12) else 8)
    objects += _shared(rolls)
    objects += [waiting("later", gpus=8), waiting("latest", gpus=4, created="2026-11-22T09:41:00Z")]
    objects += [waiting("wide", namespace="speech", gpus=8, created="2026-11-22T09:45:00Z")]
    return named(objects)


def _node(name, number, model):
    zone = {"topology.kubernetes.io/zone": f"zone-{'ab'[number % 2]}"}
    held = [{"key": "fairgate.dev/held", "value": "x", "effect": "NoSchedule"}] if number == 9 else None
    return b.node(name, gpus=8, model=model, labels=zone, taints=held, is_cordoned=number == 12)


def _pods(node, number, rolls, *, most):
    left, made = most, []
    while left and (not made or rolls.random() < 0.8):
        gpus = min(left, rolls.choice((1, 2, 4, 4, 8)))
        left -= gpus
        team = rolls.choice(("vision", "vision", "vision", "nlp", "nlp", "speech"))
        tier = "preemptible" if rolls.random() < 0.25 else "guaranteed"
        labels = {"fairgate.dev/team": team, "fairgate.dev/tier": tier}
        name = f"{KINDS[team]}-{number}-{len(made)}"
        owner = ("Job", f"{KINDS[team]}{rolls.randrange(6)}")
        pod = b.pod(name, namespace=team, gpus=gpus, node=node, labels=labels, controller=owner)
        made.append(
            _running(
                decided(pod, gpus=str(gpus), node=node, code="Borrows" if tier == "preemptible" else "WithinShare")
            )
        )
    return made


def _shared(rolls):
    yield b.node("t4-0", gpus=16, resource=SHARED, model="Tesla-T4", labels={"topology.kubernetes.io/zone": "zone-a"})
    for number in range(9):
        tier, pieces = rolls.choice(("guaranteed", "preemptible")), rolls.choice((1, 2))
        labels = {"fairgate.dev/team": "serving", "fairgate.dev/tier": tier}
        pod = b.pod(f"api-{number}", namespace="serving", gpus=pieces, resource=SHARED, node="t4-0", labels=labels)
        yield _running(decided(pod, gpus=str(pieces / 4), node="t4-0", code="WithinShare", demand={SHARED: pieces}))


def _running(pod):
    pod["status"] = {"phase": "Running", "startTime": "2026-11-22T09:00:10Z"}
    return pod
