"""Time of `fairgate review` as the user sees it: the whole command on a monorepo of manifests, and on large counts.

Manifests are drawn from a few kinds with one to sixteen pods of one to eight GPUs each; the world has nodes of eight
GPUs. The command runs in a separate process, start and imports included.

The figures of docs/benchmarks.md are those of
    python benchmarks/review.py
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

POLICY = """apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
  - {name: vision, namespaces: [vision], gpus: {guaranteed: 2000, limit: 4000}}
  - {name: nlp, namespaces: [nlp], gpus: {guaranteed: 2000, limit: unlimited}}
"""
ROOT = Path(__file__).parents[1]


def template(rng: random.Random) -> dict[str, Any]:
    resources = {"requests": {"cpu": "6", "memory": "48Gi"}, "limits": {"nvidia.com/gpu": rng.choice([1, 1, 2, 4, 8])}}
    environment = [{"name": f"SETTING_{i}", "value": str(i)} for i in range(20)]
    containers = [{"name": "main", "image": "train:1", "env": environment, "resources": resources}]
    return {"metadata": {"labels": {"app": "train"}}, "spec": {"containers": containers}}


def manifest(number: int, rng: random.Random) -> dict[str, Any]:
    pods, made = rng.choice([1, 2, 4, 8, 16]), template(rng)
    metadata = {"name": f"w{number:05}", "namespace": rng.choice(["vision", "nlp"])}
    match rng.choice(["Deployment", "Job", "PyTorchJob", "Service"]):
        case "Deployment":
            return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata} | {
                "spec": {"replicas": pods, "template": made}
            }
        case "Job":
            return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata} | {
                "spec": {"parallelism": pods, "template": made}
            }
        case "PyTorchJob":
            workers = {"Worker": {"replicas": pods, "template": made}}
            return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata} | {
                "spec": {"pytorchReplicaSpecs": workers}
            }
        case _:
            return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}


def world(nodes: int) -> dict[str, Any]:
    amounts = {"cpu": "96", "memory": "900Gi", "nvidia.com/gpu": "8", "pods": "110"}
    made = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i:05}"}, "status": {"allocatable": amounts}}
        for i in range(nodes)
    ]
    return {"apiVersion": "v1", "kind": "List", "items": made}


def review(folder: Path, source: str, *options: str) -> tuple[float, dict[str, Any]]:
    """Run the command; return the seconds and its summary."""
    command = [sys.executable, "-m", "webhook", "review", "--policy", "policy.yaml", *options, "-o", "json", source]
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr.decode())
    return seconds, json.loads(done.stdout)["summary"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manifests", type=int, default=1000, metavar="N")
    parser.add_argument("--nodes", type=int, default=1000, metavar="N")
    parser.add_argument("--replicas", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "policy.yaml").write_text(POLICY)
        (folder / "world.json").write_text(json.dumps(world(given.nodes)))
        (folder / "k8s").mkdir()
        for number in range(given.manifests):
            (folder / "k8s" / f"{number:05}.json").write_text(json.dumps(manifest(number, rng), indent=2))
        spec = {"replicas": given.replicas, "template": template(rng)}
        large = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "w", "namespace": "nlp"},
            "spec": spec,
        }
        (folder / "large.json").write_text(json.dumps(large))
        print(f"{'what':34} {'world':>12} {'pods':>8} {'seconds':>8}")
        for what, source in ((f"{given.manifests} manifests", "k8s"), (f"one of {given.replicas} pods", "large.json")):
            for against, options in (("empty", ()), (f"{given.nodes} nodes", ("--world", "world.json"))):
                seconds, summary = review(folder, source, *options)
                print(f"{what:34} {against:>12} {summary['pods']:>8} {seconds:>8.2f}")


if __name__ == "__main__":
    main()
