"""The steps of `fairgate explain`."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, assert_never

import click

from webhook.cli.explain.beside import ClusterDetails, DetailsRequest, read_details
from webhook.cli.explain.command import Options
from webhook.cli.explain.explaining import Found, explain_all
from webhook.cli.explain.outcome import ExplainedSubject, event_lines
from webhook.cli.explain.report import report_of
from webhook.cli.explain.steps import to_steps
from webhook.cli.explain.subjects import Subject, find_pod, pods_of_manifests, subject_of_pod
from webhook.cli.explain.target import Target, read_target
from webhook.cli.explain.workload import subjects_of_workload
from webhook.cli.options import columns, is_colored
from webhook.cli.queue.past import past_of
from webhook.cli.review.sources import read_sources
from webhook.cli.screen import Screen, progress
from webhook.cli.serialization import to_data
from webhook.cli.terminal import Line, print_error, print_problems
from webhook.cli.world_source import WorldObjects, choose_policy, describe_world, origin_of, read_objects, world_of
from webhook.core.explain.past import Past
from webhook.core.model.names import NodeName
from webhook.core.model.text import printable
from webhook.core.world.world import World
from webhook.input_error import InputError
from webhook.kube.kinds.table import kind_table
from webhook.kube.workloads.expand import flattened
from webhook.kube.world_file.stream import Unreadable, read_stream
from webhook.server.settings import FileWorld, LiveCluster

RUNS: Final = 0
DOES_NOT_RUN: Final = 1
NOT_JUDGED: Final = 2


class _NothingToExplainError(InputError):
    """The named object does not exist or cannot be read; `past` are the Events of Fairgate about it."""

    def __init__(self, problem: str, past: Iterable[str] = ()) -> None:
        super().__init__(problem)
        self.past = tuple(past)


def run(options: Options) -> int:
    """Explain; return the exit status."""
    try:
        with progress("Reading"):
            found = _find(options)
        explained, problems = explain_all(found, now=int(time.time()), user=options.user, node=options.node)
    except _NothingToExplainError as error:
        print_problems(error)
        for line in error.past:
            click.echo(f"  {printable(line)}", err=True)
        return NOT_JUDGED
    click.echo(_written(explained, found, options), nl=False)
    found.reading.coverage.print_note()
    if found.details.notes:
        print_error("; ".join(found.details.notes))
    for reason in problems:
        print_error(reason)
    if any(each.is_held_up for each in explained):
        return DOES_NOT_RUN
    return NOT_JUDGED if problems else RUNS


def _find(options: Options) -> Found:
    policy = choose_policy(options.policy, options.source)
    kinds = kind_table(policy.workloads.kinds)
    target = None if Path(options.what).exists() else read_target(options.what, kinds)
    manifests = _manifests(options.what) if target is None else ()
    reading = read_objects(options.source, namespaces=(options.namespace,))
    world = world_of(reading, policy, name=origin_of(options.source).name)
    is_room_known = reading.coverage.is_room_known
    if options.node is not None and is_room_known and world.fleet.get(NodeName(options.node)) is None:
        raise _NothingToExplainError(f"there is no node {options.node}")
    details = _details(options, target, has_names=reading.coverage.has_names)
    if target is None:
        subjects = list(pods_of_manifests(manifests, namespace=options.namespace, world=world, kinds=kinds))
    elif target.is_pod:
        subjects = [_pod(target.name, reading, options, world, details)]
    else:
        document = _workload(target, options, details)
        known = reading.objects if reading.coverage.covers("pods", options.namespace) else None
        subjects = list(subjects_of_workload(document, known, namespace=options.namespace, world=world, kinds=kinds))
    name = origin_of(options.source).name

    def past() -> Past:
        evictor = details.evictor
        return past_of(reading, world, options.source, (options.namespace,), history=options.history, evictor=evictor)

    return Found(subjects, reading, world, details, name, past)


def _details(options: Options, target: Target | None, *, has_names: bool) -> ClusterDetails:
    match options.source:
        case FileWorld():
            return ClusterDetails()
        case LiveCluster(kubeconfig=kubeconfig):
            request = DetailsRequest(target, options.namespace, options.fairgate_namespace, has_names)
            return read_details(kubeconfig, request)
        case _ as never:
            assert_never(never)


def _pod(name: str, reading: WorldObjects, options: Options, world: World, details: ClusterDetails) -> Subject:
    pod = find_pod(reading.objects, name, namespace=options.namespace)
    if pod is not None:
        return subject_of_pod(pod, namespace=options.namespace, world=world)
    if not reading.coverage.covers("pods", options.namespace):
        raise _NothingToExplainError(f"you may not list the pods of namespace {options.namespace}")
    if details.events:
        past = event_lines(details.events, now=time.time())
        raise _NothingToExplainError(f"pod {options.namespace}/{name} has ended or was deleted; its Events:", past)
    raise _NothingToExplainError(f"there is no pod {name} in namespace {options.namespace}; try -n NAMESPACE")


def _workload(target: Target, options: Options, details: ClusterDetails) -> Mapping[str, Any]:
    if isinstance(options.source, FileWorld):
        raise _NothingToExplainError(
            f"a world file holds no {target.kind.resource}: name the manifest of {target.kind.kind} {target.name}, or "
            "explain it from the cluster"
        )
    if details.workload is None:
        missing = f"{target.kind.kind} {target.name} was not found in namespace {options.namespace}"
        raise _NothingToExplainError(f"{missing}; {details.why_no_workload or 'try -n NAMESPACE'}")
    return details.workload


def _manifests(path: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(_objects(path))


def _objects(path: str) -> Iterator[dict[str, object]]:
    for source in read_sources((path,), sys.stdin.buffer):
        if source.problem is not None:
            raise _NothingToExplainError(f"{source.name}: {source.problem}; name a file, or KIND/NAME such as pod/NAME")
        for document in read_stream(source.content):
            if isinstance(document, Unreadable):
                raise _NothingToExplainError(f"{source.name}:{document.line}: not valid YAML: {document.problem}")
            yield from (dict(each) for each in flattened((document.value,)))


def _written(explained: list[ExplainedSubject], found: Found, options: Options) -> str:
    if options.layout.is_data:
        return to_data([report_of(each) for each in explained], options.layout)
    world, width, colored = found.world, columns(), is_colored()
    parts = [to_steps(each, policy_hash=world.policy.hash, width=width, is_colored=colored) for each in explained]
    screen = Screen(width=width, is_colored=colored)
    screen.show(Line(describe_world(origin_of(options.source), world)))
    return "\n".join([*parts, screen.text])
