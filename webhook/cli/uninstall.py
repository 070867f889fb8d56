"""`fairgate uninstall`: takes Fairgate out of a cluster, or prints the plan."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import click
import msgspec

from webhook.cli.options import Layout, command, kubeconfig_option, layout_option, of, option
from webhook.cli.output import to_data
from webhook.cli.world_source import default_kubeconfig
from webhook.cluster.api.client import ClusterError, connect
from webhook.cluster.api.requests import own_namespace
from webhook.cluster.reads.installation import may_create_pods, read_static_registration
from webhook.cluster.uninstall import Scope, StepReport, Uninstallation
from webhook.kube.registration.inventory import USUAL_GPU
from webhook.kube.registration.static_files import LEFT, certificates

DONE: Final = 0
INCOMPLETE: Final = 1
UNREADABLE: Final = 2

_PROBED: Final = "default"
_SHOWN: Final = 3
_FAILURES: Final = 10
"""Objects that a line names, and failures below it; -o json has all."""
_BY_FILES: Final = (
    "nothing was changed: an API server registers Fairgate by files (`fairgate manifests --static`); remove them from "
    "every API server, wait a minute, then run `fairgate uninstall` again"
)
_EXAMPLES: Final = """\b
Examples:
  fairgate uninstall --dry-run
  fairgate uninstall --namespace fairgate-system
  fairgate uninstall --keep-queue --keep-definitions

\b
Exit status: 0 done, 1 something is left, 2 the cluster cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options."""

    kubeconfig: Path | None = of(kubeconfig_option)
    is_dry_run: bool = option("--dry-run", is_flag=True, help="Print what would be done, in order, and change nothing.")
    keeps_line: bool = option(
        "--keep-queue",
        is_flag=True,
        help="Leave queued pods with their gate. They do not start until Fairgate is installed again with a policy "
        "that has a queue, or an admin removes the gates. Default: all start as soon as kube-scheduler finds room.",
    )
    keeps_definitions: bool = option(
        "--keep-definitions",
        is_flag=True,
        help="Leave the CustomResourceDefinitions, with ledgers and reports.",
    )
    namespace: str | None = option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="Namespace of Fairgate's Deployment and Leases. Default: look in all.",
    )
    workload: str | None = option(
        "--deployment",
        metavar="NAME",
        help="The servers' Deployment or StatefulSet in that namespace, to scale to zero. Default: those with the "
        "label app.kubernetes.io/name=fairgate.",
    )
    certs_secret: str | None = option(
        "--certs-secret",
        metavar="NAME",
        help="Also delete this Secret, with the certificates of `fairgate serve --certs-secret`. In --namespace, by "
        "default the kubeconfig's own.",
    )
    pods_per_second: int = option(
        "--pods-per-second",
        type=click.IntRange(min=1),
        default=100,
        metavar="N",
        help="How many queued pods are let go in a second.",
    )
    wait_seconds: int = option(
        "--wait-seconds",
        type=click.IntRange(min=0),
        default=120,
        metavar="SECONDS",
        help="How long to wait for servers and evictors to stop. Those outside of the cluster you stop yourself.",
    )
    layout: Layout = of(layout_option)


@command(Options, epilog=_EXAMPLES, short_help="Take Fairgate out of a cluster; nothing stays stuck.")
def uninstall(options: Options) -> None:
    """Take Fairgate out of a cluster, in an order in which no pod is stuck and no GPU pod is refused at any moment.

    First the webhooks are deleted, then the guards; queued pods are let go, held nodes opened and announced evictions
    withdrawn; servers and evictors are scaled to zero; then definitions, the ClusterRoles of `fairgate manifests` and
    Leases are deleted. No pod is evicted. `helm uninstall` runs this by itself.

    If it is interrupted, or lacks a right, run it again: it goes on from there. Kept are labels and decisions of pods,
    Events, the policy and recorded usage.
    """
    if options.workload and not options.namespace:
        raise click.UsageError("--deployment requires --namespace")
    report = UninstallReport(options.is_dry_run, complete=False, problem="", steps=[], left=list(LEFT))
    try:
        asyncio.run(_run(options, report))
    except ClusterError as error:
        report.problem = str(error)
    if options.layout.is_data:
        click.echo(to_data(report, options.layout), nl=False)
    elif not report.problem:
        head = "nothing was changed" if report.dry_run else "Fairgate is uninstalled"
        click.echo("\n".join([f"\n{head}; left on purpose:", *(f"  {each}" for each in report.left)]))
    if report.problem:
        click.echo(f"fairgate: the uninstallation ended early: {report.problem}", err=True)
        sys.exit(INCOMPLETE if report.steps else UNREADABLE)


class UninstallReport(msgspec.Struct, rename="camel"):
    """The output of `fairgate uninstall`."""

    dry_run: bool
    complete: Annotated[bool, msgspec.Meta(description="nothing is left to do")]
    problem: Annotated[str, msgspec.Meta(description="why it ended early; empty if it did not")]
    steps: Annotated[list[StepReport], msgspec.Meta(description="in the order in which they are carried out")]
    left: Annotated[list[str], msgspec.Meta(description="what is left on purpose")]


def line_of(step: StepReport) -> str:
    """Return a step as one line, with another one for each thing that failed."""
    more = len(step.objects) - _SHOWN
    named = ", ".join(step.objects[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    what = f"{named}: {step.does}" if named else "nothing"
    failures = "".join(f"\n  failed: {each}" for each in step.failed[:_FAILURES])
    return f"{step.step.value:12} {step.state.value:7} {what}{failures}"


async def _run(options: Options, report: UninstallReport) -> None:
    def note(step: StepReport) -> None:
        report.steps.append(step)
        if not options.layout.is_data:
            click.echo(line_of(step))

    kubeconfig = options.kubeconfig or default_kubeconfig()
    async with await connect(kubeconfig) as connection:
        removal = Uninstallation(connection, await _scope(options, kubeconfig), report=note, waits=_wait_for)
        # Pods that are refused show it; the chart's Job may not create any.
        if await may_create_pods(connection, _PROBED) and any(
            await read_static_registration(connection, resource=USUAL_GPU, namespace=_PROBED)
        ):
            report.problem = _BY_FILES
        if options.is_dry_run or report.problem:
            for each in await removal.plan():
                note(each)
        else:
            await removal.run()
            report.complete = True


async def _scope(options: Options, kubeconfig: Path | None) -> Scope:
    secret = options.certs_secret
    return Scope(
        namespace=options.namespace or "",
        workload=options.workload or "",
        certificates=certificates(options.namespace or await own_namespace(kubeconfig), secret) if secret else None,
        keeps_line=options.keeps_line,
        keeps_definitions=options.keeps_definitions,
        pods_per_second=options.pods_per_second,
        wait_seconds=options.wait_seconds,
    )


def _wait_for(running: list[str]) -> None:
    click.echo(f"waiting until these stop; those outside of the cluster you stop: {', '.join(running)}", err=True)
