"""The world of a review, from a file, from a live cluster or empty, and what becomes of manifests there."""

from collections.abc import Iterable
from dataclasses import dataclass

from webhook.cli.coverage import COMPLETE, Coverage
from webhook.cli.review.collect import Collected
from webhook.cli.review.evaluator import Evaluator, Item
from webhook.cli.review.results import Review, WorkloadResult, WorldFacts
from webhook.cli.world_source import Source, origin_of, read_once, without_placement
from webhook.core.model.pod import Requester
from webhook.core.model.policy import Policy
from webhook.core.world.hidden_usage import is_hidden_usage
from webhook.core.world.world import World
from webhook.kube.world_file.device_manifests import add_devices


@dataclass(frozen=True, slots=True)
class Empty:
    """No nodes and no pods: only limits decide, with nothing used."""


WorldSource = Source | Empty


@dataclass(frozen=True, slots=True)
class ReviewWorld:
    """The world of a review; unless `is_room_known`, only limits decide."""

    world: World
    facts: WorldFacts
    coverage: Coverage
    is_room_known: bool


def open_world(source: WorldSource, policy: Policy, collected: Collected, *, namespace: str) -> ReviewWorld:
    """Return the world, with the namespaces, PriorityClasses and DRA objects of the manifests. Raises WorldError."""
    if isinstance(source, Empty):
        classes = frozenset(each.name for each in collected.priority_classes)
        world = World(without_placement(policy, priority_classes=classes))
        review_world = ReviewWorld(
            world, WorldFacts("empty", "", None, 0, 0, policy.hash), COMPLETE, is_room_known=False
        )
    else:
        origin, view = origin_of(source), read_once(source, policy, namespaces=(namespace,))
        pods = sum(1 for pod in view.world.pods() if not is_hidden_usage(pod))
        facts = WorldFacts(origin.source, origin.name, origin.age_seconds, len(view.world.fleet), pods, policy.hash)
        review_world = ReviewWorld(view.world, facts, view.coverage, is_room_known=view.coverage.is_room_known)
    add_manifests(collected, review_world.world)
    return review_world


def add_manifests(collected: Collected, world: World) -> None:
    """Add namespaces, PriorityClasses and DRA objects; labels and annotations of an existing namespace are merged."""
    for facts in collected.namespaces:
        known = world.tenancy(facts.name).facts
        world.set_namespace(
            type(facts)(facts.name, {**known.labels, **facts.labels}, {**known.annotations, **facts.annotations})
        )
    for triple in collected.priority_classes:
        world.set_priority_class(triple)
    for devices in collected.devices:
        add_devices(devices, world)


def evaluated(
    entries: Iterable[WorkloadResult | Item],
    collected: Collected,
    opened: ReviewWorld,
    *,
    requester: Requester,
    now_text: str,
) -> Review:
    """Return the review of manifests on a world, each charged before the next; `entries` are those of `collected`."""
    evaluator = Evaluator(
        opened.world,
        related=collected.related,
        requester=requester,
        room_is_known=opened.is_room_known,
        now_text=now_text,
    )
    found = [evaluator.evaluate(each) if isinstance(each, Item) else each for each in entries]
    results = tuple(each for each in found if each is not None)
    return Review(results, opened.facts, len(found) - len(results), collected.skipped)
