"""`fairgate doctor`: options and help; run.py implements it."""

import sys
from pathlib import Path

import click

from webhook.cli.doctor.findings import Check
from webhook.cli.options import Layout, kubeconfig_option, layout_option, policy_option

_EXAMPLES = """\b
Examples:
  kubectl fairgate doctor
  fairgate doctor --namespace vision
  fairgate doctor --skip evictor --skip guards -o json

\b
Exit status: 0 healthy, 1 something is wrong, 2 no problem found, but not everything could be checked."""


@click.command(epilog=_EXAMPLES, short_help="Find out what is wrong with an installation.")
@policy_option
@kubeconfig_option
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Namespace of a dry run that creates a pod, to see whether Fairgate is called. Default: the kubeconfig's own.",
)
@click.option(
    "--skip",
    multiple=True,
    type=click.Choice(Check, case_sensitive=False),
    help="Skip a check. Repeatable.",
)
@layout_option
def doctor(
    *, policy: Path | None, kubeconfig: Path | None, namespace: str | None, skip: tuple[Check, ...], layout: Layout
) -> None:
    """Check a whole installation: what is wrong, and what to do about it.

    The checks: servers are ready and have a leader, the evictor has a leader, all have the same policy in force,
    certificates are valid and trusted by the webhooks, webhooks and guards are registered as the policy requires, the
    API server reaches Fairgate (a dry run creates a pod, which is not stored), no ledger is missing or behind, no pod
    is too large to be evicted.

    The ClusterRole fairgate-viewer is enough for all but the dry run, which needs the right to create pods in a
    namespace, and the sizes of pods, which need the right to list them. Checks for which you lack a right are reported
    as unknown.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.doctor.run import Options, run  # noqa: PLC0415
    from webhook.cli.world_source import default_kubeconfig  # noqa: PLC0415

    sys.exit(run(Options(policy, kubeconfig or default_kubeconfig(), namespace, frozenset(skip), layout)))
