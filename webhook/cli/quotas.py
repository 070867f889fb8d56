"""`fairgate policy from-quotas`: print a policy with the limits of existing ResourceQuotas."""

import sys
from collections.abc import Iterable
from typing import BinaryIO

import click

from webhook.cli.terminal import print_error
from webhook.core.model.amount import format_gpus
from webhook.core.model.text import printable
from webhook.kube.workloads.expand import flattened
from webhook.kube.workloads.quota_shares import QuotaShare, shares_of
from webhook.policy.builtin import BUILT_IN
from webhook.yaml_reader import DocumentError, read_documents

_HEAD = """apiVersion: fairgate.dev/v1alpha1
kind: Policy
teams:
"""
_TAIL = """defaults:
  unknownTeam: preemptible  # namespaces without a quota keep working
"""


@click.command(
    "from-quotas",
    epilog="""\b
Examples:
  kubectl get resourcequotas --all-namespaces -o json | fairgate policy from-quotas - > policy.yaml

\b
Exit status: 0 printed, 1 no quota limits GPUs, 2 the quotas cannot be read.""",
)
@click.argument("quotas", metavar="FILE|-", type=click.File("rb"))
def from_quotas(quotas: BinaryIO) -> None:
    """Print a policy with the limits of existing ResourceQuotas.

    Each namespace with a quota on GPUs becomes a team whose limit equals its guaranteed share, so no team borrows yet.
    What has no counterpart is printed to standard error.
    """
    try:
        found = flattened(read_documents(quotas.read()))
        shares = shares_of((each for each in found if each.get("kind") == "ResourceQuota"), BUILT_IN)
    except (DocumentError, ValueError) as error:
        print_error(f"the quotas cannot be read: {error}")
        sys.exit(2)
    for line in (line for share in shares for line in share.left_out):
        click.echo(printable(f"left out: {line}"), err=True)
    teams = [share for share in shares if share.gpus]
    if not teams:
        print_error("no quota limits a resource that counts as a GPU")
        sys.exit(1)
    click.echo(_written(teams), nl=False)


def _written(shares: Iterable[QuotaShare]) -> str:
    return _HEAD + "".join(map(_team, shares)) + _TAIL


def _team(share: QuotaShare) -> str:
    gpus = format_gpus(share.gpus)
    return (
        f"  - name: {share.namespace}\n"
        f"    namespaces: [{share.namespace}]\n"
        f"    gpus: {{guaranteed: {gpus}, limit: {gpus}}}\n"
    )
