"""Carries `fairgate explain` out."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from webhook.cli.explain.report import report_of
from webhook.cli.explain.steps import to_steps
from webhook.cli.explain.subjects import Subject, pod_name, pod_of_world, pods_of_manifests
from webhook.cli.options import Layout, columns, is_coloured
from webhook.cli.review.imagined import Imagination
from webhook.cli.review.sources import read_sources
from webhook.cli.screen import complain
from webhook.cli.worlds import (
    Objects,
    Source,
    View,
    WorldError,
    choose_policy,
    origin_of,
    read_objects,
    read_once,
    seen,
    world_of,
)
from webhook.cli.written import to_json, to_yaml
from webhook.core.asked import as_asked
from webhook.core.decision import Deny
from webhook.core.explanation import Explanation, PoolStep, explain
from webhook.core.names import Uid
from webhook.core.pod import Pod
from webhook.core.replay import requester_of
from webhook.core.world import World
from webhook.kube.pods import stand_in_uid
from webhook.kube.stream import Unreadable, read_stream
from webhook.kube.workloads.expand import flattened
from webhook.kube.workloads.model import Unknown
from webhook.policy.problems import PolicyError, PolicyUnreadable

RUNS: Final = 0
DOES_NOT_RUN: Final = 1
NOT_JUDGED: Final = 2

_NOT_LOOKED_AT: Final = "not looked at: you may not list all nodes and pods"


@dataclass(frozen=True, slots=True)
class Order:
    """What the user asked for."""

    what: str
    policy: Path | None
    source: Source
    namespace: str
    user: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class _Told:
    subject: Subject
    explanation: Explanation


class _NothingToExplainError(Exception):
    """What was named is not there, or cannot be read."""


def run(order: Order) -> int:
    """Explain, and give the exit status."""
    shown = Console(stderr=True)
    try:
        with shown.status("Reading") if shown.is_terminal else nullcontext():
            view, found = _subjects(order)
    except (PolicyError, PolicyUnreadable, WorldError, _NothingToExplainError) as error:
        for problem in error.problems if isinstance(error, PolicyError) else (error,):
            complain(problem)
        return NOT_JUDGED
    view.coverage.tell()
    world = view.world
    imagination = None if view.coverage.is_room_known else Imagination(world)
    told = []
    problems = []
    for subject in found:
        if isinstance(subject, Unknown):
            problems.append(subject.reason)
        elif isinstance(subject.template, Deny):
            problems += [f"{subject.title}: {reason.text} ({reason.code})" for reason in subject.template.reasons]
        else:
            told.append(_Told(subject, _explained(subject, subject.template.pod, world, order, imagination)))
    click.echo(_written(told, order, world), nl=False)
    for reason in problems:
        complain(reason)
    if any(not each.explanation.runs_now and each.explanation.limits for each in told):
        return DOES_NOT_RUN
    return NOT_JUDGED if problems else RUNS


def _subjects(order: Order) -> tuple[View, Sequence[Subject | Unknown]]:
    policy = choose_policy(order.policy, order.source)
    name = pod_name(order.what)
    if name is None:
        view = read_once(order.source, policy, namespaces=(order.namespace,))
        return view, list(pods_of_manifests(_manifests(order.what), namespace=order.namespace, world=view.world))
    found = read_objects(order.source, namespaces=(order.namespace,))
    world = world_of(found, policy, name=origin_of(order.source).name)
    subject = pod_of_world(found.objects, name, namespace=order.namespace, world=world)
    if subject is None:
        raise _NothingToExplainError(f"there is no pod {name} in namespace {order.namespace}; try -n NAMESPACE")
    return View(world, found.coverage), [subject]


def _manifests(path: str) -> Objects:
    return tuple(_objects(path))


def _objects(path: str) -> Iterator[dict[str, object]]:
    for source in read_sources((path,), sys.stdin.buffer):
        if source.problem is not None:
            raise _NothingToExplainError(f"{source.name}: {source.problem}; name a file or pod/NAME")
        for document in read_stream(source.content):
            if isinstance(document, Unreadable):
                raise _NothingToExplainError(f"{source.name}:{document.line}: not valid YAML: {document.problem}")
            yield from (dict(each) for each in flattened((document.value,)))


def _explained(subject: Subject, pod: Pod, world: World, order: Order, imagination: Imagination | None) -> Explanation:
    """Explain a pod as if it came now; one that exists is taken off first. Where room is not known, it is imagined."""
    user = order.user
    if subject.existing is not None:
        uid = pod.uid or stand_in_uid(pod.namespace, pod.name)
        charge = world.charge_of(Uid(uid))
        user = user or (charge.user or "" if charge is not None else "")
        world.remove_pod(Uid(uid))
        pod = as_asked(pod, world.policy)
    if imagination is None:
        return explain(pod, requester_of(pod, user), world)
    imagination.make_room(pod)
    told = explain(pod, requester_of(pod, user), world)
    return replace(told, pools=tuple(PoolStep(step.pool, step.closed or _NOT_LOOKED_AT, None) for step in told.pools))


def _written(told: list[_Told], order: Order, world: World) -> str:
    reports = [report_of(each.subject, each.explanation) for each in told]
    match order.layout:
        case Layout.JSON:
            return to_json(reports)
        case Layout.YAML:
            return to_yaml(reports)
        case Layout.TABLE | Layout.WIDE:
            parts = [
                to_steps(
                    each.subject,
                    each.explanation,
                    policy_hash=world.policy.hash,
                    width=columns(),
                    is_coloured=is_coloured(),
                )
                for each in told
            ]
            return "\n".join([*parts, f"{seen(origin_of(order.source), world)}\n"])
