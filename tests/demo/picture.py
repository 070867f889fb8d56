"""Draws the GPUs of every node, and the waiting pods, from nodes and pods alone, so also without Fairgate. Pure.

The letters are those of `fairgate status`: the team's, upper case if the pod is guaranteed, lower case if it borrows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from tests.control_plane.objects import GPU
from tests.control_plane.workbench import unschedulable_message

TIER = "fairgate.dev/tier"
COLORS = {"team-a": "cyan", "team-b": "yellow"}


@dataclass(frozen=True, slots=True)
class GpuPod:
    """A pod that requests GPUs and has not finished; `node` is "" while it waits, and `why` the scheduler's reason."""

    namespace: str
    name: str
    gpus: int
    node: str
    is_borrowed: bool
    is_running: bool
    is_leaving: bool
    why: str


def gpu_pods(pods: Iterable[Mapping[str, Any]]) -> list[GpuPod]:
    """The pods that request GPUs and have not finished, guaranteed before borrowed."""
    read = (_read(pod) for pod in pods if pod["status"].get("phase") not in {"Succeeded", "Failed"})
    return sorted((pod for pod in read if pod.gpus), key=lambda pod: (pod.namespace, pod.is_borrowed, pod.name))


def draw(nodes: Mapping[str, int], pods: Sequence[GpuPod], *, is_plain: bool = False) -> Text:
    """Draw a line per node, with the GPUs of a pod joined, and a line per waiting team; only ASCII if `is_plain`."""
    lines = [_node(node, size, [pod for pod in pods if pod.node == node], is_plain) for node, size in nodes.items()]
    waiting = [pod for pod in pods if not pod.node]
    teams = sorted({pod.namespace for pod in waiting})
    lines += [_waiting(team, [pod for pod in waiting if pod.namespace == team]) for team in teams]
    return Text("\n").join(lines)


def legend(*, is_plain: bool = False) -> Text:
    """Explain the letters of a picture."""
    joint, free = _signs(is_plain)
    [a, b], small = (_letter(team, is_borrowed=False) for team in COLORS), _letter("team-a", is_borrowed=True)
    teams = Text.assemble("In the pictures ", a, " is a GPU of team A, ", b, f" of team B, {free} a free one. ")
    return Text.assemble(teams, f"{joint} joins the GPUs of one pod. A lower-case letter (", small, ") is borrowed.")


def _read(pod: Mapping[str, Any]) -> GpuPod:
    metadata, spec = pod["metadata"], pod["spec"]
    limits = (container["resources"].get("limits", {}) for container in spec["containers"])
    return GpuPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        gpus=sum(int(limit.get(GPU, 0)) for limit in limits),
        node=spec.get("nodeName", ""),
        is_borrowed=metadata.get("labels", {}).get(TIER) == "preemptible",
        is_running=pod["status"].get("phase") == "Running",
        is_leaving="deletionTimestamp" in metadata,
        why=unschedulable_message(pod).partition(". ")[0].partition(": ")[2].rstrip("."),
    )


def _node(node: str, size: int, pods: Sequence[GpuPod], is_plain: bool) -> Text:
    joint, free = _signs(is_plain)
    cells = [_pod(pod, joint) for pod in pods]
    used = sum(pod.gpus for pod in pods)
    cells += [Text(free, style="dim")] * (size - used)
    return Text.assemble(f"    {node}  ", Text(" ").join(cells), f"   {used:2} of {size}")


def _pod(pod: GpuPod, joint: str) -> Text:
    letter = _letter(pod.namespace, is_borrowed=pod.is_borrowed)
    return Text(joint, style=letter.style).join([letter] * pod.gpus)


def _waiting(team: str, pods: Sequence[GpuPod]) -> Text:
    gpus, count = sum(pod.gpus for pod in pods), len(pods)
    waiting = f"    waiting: {count} {'pod' if count == 1 else 'pods'} of {team}, {gpus} GPUs"
    reasons = [f"    kube-scheduler: {why}" for why in sorted({pod.why for pod in pods if pod.why})]
    return Text("\n".join([waiting, *reasons[:1]]), style="bold red")


def _letter(team: str, *, is_borrowed: bool) -> Text:
    color = COLORS.get(team, "white")
    return Text(team[-1], color) if is_borrowed else Text(team[-1].upper(), f"black on {color}")


def _signs(is_plain: bool) -> tuple[str, str]:
    return ("-", ".") if is_plain else ("─", "·")
