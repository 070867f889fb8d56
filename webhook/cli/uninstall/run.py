"""Runs `fairgate uninstall`: checks rights, looks at what is there, prints the plan or carries it out."""

import asyncio
from pathlib import Path
from typing import Final

import click

from webhook.cli.options import Layout
from webhook.cli.serialization import to_data
from webhook.cli.uninstall.command import Options
from webhook.cli.uninstall.report import StepReport, UninstallReport, line_of, step_report, summary_of
from webhook.cli.world_source import default_kubeconfig
from webhook.cluster.api.client import ApiConnection, connect
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.api.namespace import own_namespace
from webhook.cluster.reads.installation import read_static_registration
from webhook.cluster.uninstall.plan import plan
from webhook.cluster.uninstall.removal import StepResult, Uninstallation
from webhook.cluster.uninstall.rights import missing_rights, needed_rights
from webhook.cluster.uninstall.scope import Scope, Tempo
from webhook.cluster.uninstall.survey import survey
from webhook.core.model.text import plural
from webhook.kube.registration.installation import USUAL_GPU
from webhook.kube.registration.inventory import LEFT

DONE: Final = 0
INCOMPLETE: Final = 1
UNREADABLE: Final = 2

_PROBED: Final = "default"
"""The namespace of two pods that are refused (`read_static_registration`): there is one in every cluster."""
_BY_FILES: Final = (
    "nothing was changed: an API server registers Fairgate by files (`fairgate manifests --static`), and would refuse "
    "GPU pods once its processes have stopped; remove the files from the folders of every API server, wait a minute, "
    "then run `fairgate uninstall` again"
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
    is_static = any(await read_static_registration(connection, resource=USUAL_GPU, namespace=_PROBED))
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
