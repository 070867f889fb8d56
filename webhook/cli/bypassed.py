"""`fairgate bypassed`: the GPU pods on which Fairgate did not decide when they were created."""

import sys
import time
from dataclasses import dataclass
from typing import Annotated

import click
import msgspec

from webhook.cli.grid import Column, Grid, Line, number, prose
from webhook.cli.options import (
    Layout,
    PolicyOptions,
    columns,
    command,
    is_colored,
    layout_option,
    limit_option,
    most_rows,
    of,
    only_namespaces_option,
)
from webhook.cli.output import to_data
from webhook.cli.screen import Screen, progress
from webhook.core.explain.pod_rows import BypassedPod, bypassed_pods, bypassed_text
from webhook.core.model.amounts import format_gpus, plural, span
from webhook.kube.ledger.reports import written_at

_SOME = 1


class PodReport(msgspec.Struct, rename="camel"):
    """A pod without a decision."""

    pod: str
    team: Annotated[str, msgspec.Meta(description="the team that is charged")]
    tier: Annotated[str, msgspec.Meta(description="as Fairgate labeled it later; empty: not labeled")]
    gpus: str
    node: str | None
    created: str
    why: str


class BypassedReport(msgspec.Struct, rename="camel"):
    """The output of `fairgate bypassed`."""

    pods: Annotated[list[PodReport], msgspec.Meta(description="those first that Fairgate would have placed, by age")]
    left_out: Annotated[
        list[str], msgspec.Meta(description="what the user may not read, and which right would show it")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(PolicyOptions):
    """The user's options."""

    namespaces: tuple[str, ...] = of(only_namespaces_option)
    limit: int | None = of(limit_option)
    layout: Layout = of(layout_option)


@command(
    Options,
    short_help="Show which pods hold GPUs without a decision of Fairgate.",
    epilog="""\b
Examples:
  kubectl fairgate bypassed
  kubectl fairgate bypassed -n vision -o json

\b
Exit status: 0 none, 1 some that Fairgate would have placed, 2 the policy or the world cannot be read.""",
)
def bypassed(options: Options) -> None:
    """Show the GPU pods that were created past Fairgate; by default of the cluster.

    They came while Fairgate was off or did not enforce policy, or something left it out: a label that excludes their
    namespace from its webhooks, a node by name, another scheduler. They are charged all the same, and most get labels
    later; they stay listed here while they exist. Pods of exempt namespaces are left out.
    """
    from webhook.cli.world_source import choose_policy, read_once  # noqa: PLC0415 - slow to import

    with progress("Reading"):
        policy = choose_policy(options.policy, options.source)
        view = read_once(options.source, policy, namespaces=options.namespaces, keep_nodes=True)
    view.coverage.print_note()
    only = options.namespaces
    found = bypassed_pods(view.world, sees=lambda namespace: not only or namespace in only)
    if options.layout.is_data:
        text = to_data(BypassedReport([_report(each) for each in found], view.coverage.notes()), options.layout)
    else:
        text = _table(found, limit=most_rows(options.limit))
    click.echo(text, nl=False)
    sys.exit(_SOME if bypassed_text(found) else 0)


def _report(found: BypassedPod) -> PodReport:
    pod = found.pod
    created = written_at(pod.created) if pod.created else ""
    gpus, tier = format_gpus(pod.demand.gpus), pod.tier_label or ""
    return PodReport(f"{pod.namespace}/{pod.name}", found.team, tier, gpus, pod.node, created, found.why)


def _table(found: list[BypassedPod], *, limit: int) -> str:
    screen, now = Screen(width=columns(), is_colored=is_colored()), time.time()
    if found:
        rows = Grid("pod", Column("team", goes=2), number("GPUs"), Column("tier", goes=1), number("age"), prose("why"))
        for each in found[:limit]:
            pod, row = each.pod, _report(each)
            age = span(max(0.0, now - pod.created)) if pod.created else "-"
            rows.add_row(*map(Line, (row.pod, row.team, row.gpus, row.tier or "-", age, row.why)))
        screen.show(rows, "")
        screen.show_rest(len(found) - limit, "pod")
    screen.show(
        Line(f"{plural(len(found), 'pod')} without a decision of Fairgate" if found else "no pod bypassed Fairgate")
    )
    return screen.text
