"""`fairgate doctor`: the options and what they mean; run.py does it."""

import sys
from pathlib import Path

import click

from webhook.cli.doctor.findings import Check
from webhook.cli.options import Layout, policy_option

_EXAMPLES = """\b
Examples:
  kubectl fairgate doctor
  fairgate doctor --namespace vision
  fairgate doctor --skip evictor --skip guards -o json

\b
Exit status: 0 healthy, 1 something is wrong, 2 nothing is known to be wrong, but not all could be looked at."""


@click.command(epilog=_EXAMPLES, short_help="Find out what is wrong with an installation.")
@policy_option
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The cluster. Default: $KUBECONFIG, ~/.kube/config, or the cluster this pod runs in.",
)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Where a pod is created as a dry run, to see whether Fairgate is asked. Default: the kubeconfig's own.",
)
@click.option(
    "--skip",
    multiple=True,
    type=click.Choice(Check, case_sensitive=False),
    help="Leave a check out. Repeatable.",
)
@click.option(
    "-o",
    "--output",
    "layout",
    type=click.Choice([Layout.TABLE, Layout.JSON, Layout.YAML], case_sensitive=False),
    default=Layout.TABLE.value,
    show_default=True,
)
def doctor(
    *, policy: Path | None, kubeconfig: Path | None, namespace: str | None, skip: tuple[Check, ...], layout: Layout
) -> None:
    """Check a whole installation: say what is wrong, and what to do about it.

    The checks: servers are ready, one leads, an evictor leads, all have the same policy in force, certificates are
    valid and trusted by the webhooks, webhooks and guards are registered as the policy wants them, the API server
    reaches Fairgate (a pod is created as a dry run: nothing comes of it), no ledger is missing or behind.

    The ClusterRole fairgate-viewer is enough for all but the dry run, which takes the right to create pods in a
    namespace. What you may not read is said, and not checked.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.doctor.run import Order, run  # noqa: PLC0415
    from webhook.cli.world_source import default_kubeconfig  # noqa: PLC0415

    sys.exit(run(Order(policy, kubeconfig or default_kubeconfig(), namespace, frozenset(skip), layout)))
