"""Answers for the page, by the code of `explain` and `review`, each on a snapshot of the shared state."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from webhook.cli.coverage import COMPLETE, Coverage
from webhook.cli.explain.beside import ClusterDetails, DetailsRequest, fetch_details
from webhook.cli.explain.explaining import Found, explain_all
from webhook.cli.explain.report import report_of
from webhook.cli.explain.steps import to_steps
from webhook.cli.explain.subjects import subject_of_pod
from webhook.cli.explain.target import POD, Target
from webhook.cli.review.collect import Collected, collect
from webhook.cli.review.evaluator import Evaluator, Item
from webhook.cli.review.report import to_json
from webhook.cli.review.results import Review, WorldFacts
from webhook.cli.review.review_world import add_manifests
from webhook.cli.review.sources import Source as Manifest
from webhook.cli.world_source import WorldObjects
from webhook.core.model.pod import Requester
from webhook.kube.objects.keys import OWN_NAMESPACE
from webhook.kube.workloads.model import mapping, text
from webhook.page.http.answers import Explained, Reviewed
from webhook.page.live.cluster_state import ClusterState
from webhook.page.live.snapshots import Snapshots, TooLongError
from webhook.page.views.viewer import Viewer

_WIDTH: Final = 110
_FORM: Final = "the form"
_WITHOUT_RECLAIM: Final = "reclaim: with so many pods, ask `fairgate explain` what it could do"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The live cluster behind the page, for what is read of it besides: Events, budgets, the evictor's Lease."""

    kubeconfig: Path | None


class CommandAnswers:
    """Answers by the commands' code. `cluster` is None for a file; `coverage` says what part was read."""

    def __init__(
        self,
        state: ClusterState,
        snapshots: Snapshots,
        *,
        cluster: Cluster | None,
        coverage: Callable[[], Coverage] = lambda: COMPLETE,
    ) -> None:
        self._state = state
        self._snapshots = snapshots
        self._cluster = cluster
        self._coverage = coverage

    async def explain(self, namespace: str, name: str) -> Explained | None:
        """Explain a pod; None where there is none of this name. Raises SnapshotError."""
        pod = self._state.reading.objects.get("Pod", f"{namespace}/{name}")
        if pod is None:
            return None
        details = ClusterDetails()
        if self._cluster is not None:
            waits = not mapping(pod.get("spec")).get("nodeName")
            request = DetailsRequest(Target(POD, ("v1",), name), namespace, OWN_NAMESPACE, reads_reclaim=waits)
            details = await fetch_details(self._cluster.kubeconfig, request)
        waits = not mapping(pod.get("spec")).get("nodeName")
        try:
            return await self._on_snapshot(pod, namespace, details, has_reclaim=waits)
        except TooLongError:
            if not waits:
                raise
            found = await self._on_snapshot(pod, namespace, details, has_reclaim=False)
            return msgspec.structs.replace(found, text=f"{found.text}\n{_WITHOUT_RECLAIM}\n")

    async def _on_snapshot(
        self, pod: Mapping[str, Any], namespace: str, details: ClusterDetails, *, has_reclaim: bool
    ) -> Explained:
        encoded = await self._snapshots.run(
            lambda: msgspec.json.encode(self._explained(pod, namespace, details, has_reclaim=has_reclaim))
        )
        return msgspec.json.decode(encoded, type=Explained)

    def _explained(
        self, pod: Mapping[str, Any], namespace: str, details: ClusterDetails, *, has_reclaim: bool
    ) -> Explained:
        reading = self._state.reading
        world, kept = reading.world, reading.objects
        objects = tuple(kept.all()) if has_reclaim else (pod, *kept.of_kind("Node"))
        subject = subject_of_pod(pod, namespace=namespace, world=world)
        read = WorldObjects(objects, self._coverage())
        found = Found([subject], read, world, details, self._state.origin, lambda: reading.runs)
        [explained], _ = explain_all(found, now=int(time.time()), has_reclaim=has_reclaim)
        report = report_of(explained)
        steps = to_steps(explained, policy_hash=world.policy.hash, width=_WIDTH, is_colored=False)
        return Explained(
            report.subject,
            report.outcome,
            report.tier or "",
            tuple((reason.code, reason.message) for reason in (*report.reasons, *report.warnings)),
            steps,
        )

    async def review(self, manifest: bytes, *, namespace: str, user: str, viewer: Viewer) -> Reviewed:
        """Review manifests. Raises SnapshotError."""
        encoded = await self._snapshots.run(
            lambda: msgspec.json.encode(self._reviewed(manifest, namespace, user, viewer))
        )
        return msgspec.json.decode(encoded, type=Reviewed)

    def _reviewed(self, manifest: bytes, namespace: str, user: str, viewer: Viewer) -> Reviewed:
        collected = collect((Manifest(_FORM, manifest),), namespace=namespace)
        if not viewer.sees_all and (problem := _beyond(collected, viewer)):
            return Reviewed(problem=problem)
        reading = self._state.reading
        add_manifests(collected, reading.world)
        evaluator = Evaluator(
            reading.world,
            related=collected.related,
            requester=Requester(user),
            room_is_known=reading.is_room_known,
            now_text=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        found = [evaluator.evaluate(each) if isinstance(each, Item) else each for each in collected.entries]
        results = tuple(each for each in found if each is not None)
        facts = WorldFacts("cluster", self._state.origin, None, len(reading.world.fleet), 0, reading.world.policy.hash)
        review = Review(results, facts, len(found) - len(results), collected.skipped)
        return Reviewed(msgspec.json.decode(to_json(review)))


def _beyond(collected: Collected, viewer: Viewer) -> str:
    """Return why manifests are not judged for a viewer of some namespaces; "" where they are.

    A Namespace among them could move a namespace to another team, whose pods the viewer may not see.
    """
    if collected.namespaces:
        return "You may not list pods in all namespaces, so a manifest of a Namespace is not judged."
    for entry in collected.entries:
        if isinstance(entry, Item):
            namespace = text(mapping(entry.object.get("metadata")).get("namespace")) or entry.namespace
            if not viewer.sees(namespace):
                return f"You may not list pods in namespace {namespace}, so what would run there is not judged."
    return ""
