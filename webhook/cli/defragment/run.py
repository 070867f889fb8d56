"""Runs `fairgate defragment`."""

import time

import click

from webhook.cli.defragment.command import Options
from webhook.cli.defragment.reading import Fragmented, details_of, read_fragmented
from webhook.cli.defragment.report import report_of
from webhook.cli.defragment.table import to_table
from webhook.cli.options import columns, is_colored
from webhook.cli.screen import progress
from webhook.cli.serialization import to_data
from webhook.cli.terminal import print_error
from webhook.cli.world_source import WorldError, choose_policy, describe_world, origin_of, read_objects
from webhook.core.defragment.defragment import Defragmentation, grow, imagined, make_room
from webhook.core.model.names import ResourceName


def run(options: Options) -> None:
    """Show the moves."""
    now, origin = int(time.time()), origin_of(options.source)
    with progress("Reading"):
        policy = choose_policy(options.policy, options.source)
        found = read_objects(options.source, namespaces=options.namespaces, has_room=False)
        details = details_of(options.source)
        fragmented = read_fragmented(
            found, policy, details, name=origin.name, now=now, per_workload=options.per_workload
        )
    with progress("Planning"):
        plans = _plans(options, fragmented)
    report = report_of(plans, fragmented)
    if options.layout.is_data:
        click.echo(to_data(report, options.layout), nl=False)
        return
    source = describe_world(origin, fragmented.world)
    click.echo(to_table(report, source=source, width=columns(), is_colored=is_colored()), nl=False)
    for note in fragmented.notes:
        print_error(note)


def _plans(options: Options, fragmented: Fragmented) -> Defragmentation:
    movement = fragmented.movement
    if not options.is_largest and options.gpus is None:
        return make_room(fragmented.targets, movement)
    resource = ResourceName(options.resource) if options.resource else _most_frequent(fragmented)
    if resource not in movement.weights or not movement.fleet.offers(resource):
        offered = ", ".join(name for name in sorted(movement.weights) if movement.fleet.offers(name)) or "none"
        raise WorldError(f"no node offers GPUs of resource {resource}; offered: {offered}")
    if options.gpus is None:
        return grow(resource, movement)
    return make_room((imagined(resource, options.gpus, movement),), movement)


def _most_frequent(fragmented: Fragmented) -> ResourceName:
    """Return the resource of which the nodes offer the most pieces."""
    fleet, weights = fragmented.movement.fleet, fragmented.movement.weights
    offered = {name: sum(node.allocatable.get(name, 0) for node in fleet.nodes()) for name in sorted(weights)}
    return max(offered, key=lambda name: offered[name])
