"""Runs `fairgate uninstall`: rights, plan, steps, the report.

The output of `fairgate uninstall`: as data, and as lines for a terminal.
"""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import click
import msgspec

from webhook.cli.options import Layout
from webhook.cli.output import to_data
from webhook.cli.uninstall.command import Options
from webhook.cli.world_source import default_kubeconfig
from webhook.cluster.api.client import ApiConnection, ClusterError, connect
from webhook.cluster.api.requests import own_namespace
from webhook.cluster.reads.installation import read_static_registration
from webhook.cluster.uninstall.removal import PlannedStep, Step, StepResult, Uninstallation, plan
from webhook.cluster.uninstall.survey import Right, Scope, Tempo, missing_rights, needed_rights, survey
from webhook.core.model.amounts import plural
from webhook.kube.registration.inventory import USUAL_GPU
from webhook.kube.registration.static_files import LEFT

_SHOWN: Final = 3
_FAILURES: Final = 10
"""Objects that a line names, and failures below it; -o json has all."""


class State(StrEnum):
    """How far a step is. `kept`: what it is about stays, as the user wished."""

    PLANNED = "planned"
    DONE = "done"
    KEPT = "kept"
    FAILED = "failed"


class StepReport(msgspec.Struct):
    """A step, what it does, and with what."""

    step: Step
    state: State
    does: str
    objects: list[str]
    failed: Annotated[list[str], msgspec.Meta(description="what could not be done, and why")]


class UninstallReport(msgspec.Struct, rename="camel"):
    """The output of `fairgate uninstall`."""

    dry_run: bool
    complete: Annotated[bool, msgspec.Meta(description="nothing is left to do")]
    missing_rights: list[str]
    problem: Annotated[str, msgspec.Meta(description="why it ended early; empty if it did not")]
    steps: Annotated[list[StepReport], msgspec.Meta(description="in the order in which they are carried out")]
    left: Annotated[list[str], msgspec.Meta(description="what is left on purpose")]


def step_report(planned: PlannedStep, *, is_over: bool, failed: tuple[str, ...] = ()) -> StepReport:
    """Return a step as data."""
    over = State.FAILED if failed else State.DONE
    state = State.KEPT if planned.is_kept else over if is_over else State.PLANNED
    return StepReport(planned.step, state, planned.does, list(planned.objects), list(failed))


def line_of(step: StepReport) -> str:
    """Return a step as one line, with another one for each thing that failed."""
    more = len(step.objects) - _SHOWN
    named = ", ".join(step.objects[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    what = f"{named}: " if named else ""
    failures = "".join(f"\n  failed: {each}" for each in step.failed[:_FAILURES])
    return f"{step.step.value:12} {step.state.value:7} {what}{step.does if named else 'nothing'}{failures}"


def summary_of(report: UninstallReport) -> str:
    """Return the closing lines."""
    left = "\n".join(f"  {each}" for each in report.left)
    failed = sum(len(step.failed) for step in report.steps)
    if report.dry_run:
        head = "nothing was changed"
    elif report.complete:
        head = "Fairgate is uninstalled"
    else:
        head = f"{plural(failed, 'object')} could not be changed: run it again"
    return f"\n{head}; left on purpose:\n{left}\n"


# Runs `fairgate uninstall`: checks rights, looks at what is there, prints the plan or carries it out.


DONE: Final = 0
INCOMPLETE: Final = 1
UNREADABLE: Final = 2

_PROBE: Final = Right("create", "", "pods", namespace="default")
"""Finds registration by files: two pods are refused (`read_static_registration`). Without this right none is tried."""
_BY_FILES: Final = (
    "nothing was changed: an API server registers Fairgate by files (`fairgate manifests --static`); remove them from "
    "every API server, wait a minute, then run `fairgate uninstall` again"
)


def run(options: Options) -> int:
    """Uninstall, or print the plan; return the exit status."""
    report = UninstallReport(options.is_dry_run, complete=False, missing_rights=[], problem="", steps=[], left=[])
    try:
        asyncio.run(_run(options, report))
    except ClusterError as error:
        report.problem = str(error)
    if options.layout.is_data:
        click.echo(to_data(report, options.layout), nl=False)
    elif not (report.problem or report.missing_rights):
        click.echo(summary_of(report), nl=False)
    if report.problem:
        click.echo(f"fairgate: the uninstallation ended early: {report.problem}", err=True)
        return INCOMPLETE if report.steps else UNREADABLE
    if report.missing_rights:
        click.echo(_without_rights(report.missing_rights), err=True)
        return INCOMPLETE
    return DONE if report.complete or report.dry_run else INCOMPLETE


async def _run(options: Options, report: UninstallReport) -> None:
    kubeconfig = options.kubeconfig or default_kubeconfig()
    tempo = Tempo(pods_per_second=options.pods_per_second, wait_seconds=options.wait_seconds)
    async with await connect(kubeconfig) as connection:
        scope = await _scope(options, kubeconfig)
        missing = await missing_rights(connection, needed_rights(scope), tempo)
        report.missing_rights = [right.text for right in missing]
        if not missing:
            await _carry_out(connection, scope, tempo, options, report)


async def _scope(options: Options, kubeconfig: Path | None) -> Scope:
    namespace = options.namespace or ""
    return Scope(
        namespace=namespace,
        workload=options.workload or "",
        certs_secret=options.certs_secret or "",
        secret_namespace=(namespace or await own_namespace(kubeconfig)) if options.certs_secret else "",
        keeps_line=options.keeps_line,
        keeps_definitions=options.keeps_definitions,
    )


async def _carry_out(
    connection: ApiConnection, scope: Scope, tempo: Tempo, options: Options, report: UninstallReport
) -> None:
    def note(step: StepReport) -> None:
        report.steps.append(step)
        if options.layout in (Layout.TABLE, Layout.WIDE):
            click.echo(line_of(step))

    def ended(result: StepResult) -> None:
        note(step_report(result.planned, is_over=True, failed=result.failed))

    found = await survey(connection, scope, tempo)
    may_probe = not await missing_rights(connection, [_PROBE], tempo)
    is_static = may_probe and any(
        await read_static_registration(connection, resource=USUAL_GPU, namespace=_PROBE.namespace)
    )
    report.problem = _BY_FILES if is_static else ""
    if options.is_dry_run or is_static:
        for each in plan(found, scope):
            note(step_report(each, is_over=False))
    else:
        await Uninstallation(connection, scope, tempo, report=ended, waits=_wait_for).run(found)
    report.left = list(LEFT)
    is_over = not (options.is_dry_run or is_static)
    report.complete = is_over and not any(step.failed for step in report.steps)


def _wait_for(running: list[str]) -> None:
    click.echo(f"waiting until these stop; those outside of the cluster you stop: {', '.join(running)}", err=True)


def _without_rights(missing: list[str]) -> str:
    listed = "\n".join(f"  {each}" for each in missing)
    return f"fairgate: nothing was changed: you lack {plural(len(missing), 'right')} that this needs:\n{listed}"
