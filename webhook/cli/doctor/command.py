"""`fairgate doctor`: options and help; run.py implements it."""

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from webhook.cli.doctor.checks import Check
from webhook.cli.options import (
    Layout,
    command,
    kubeconfig_option,
    layout_option,
    of,
    option,
    path_option,
    policy_option,
)

_EXAMPLES = """\b
Examples:
  kubectl fairgate doctor
  fairgate doctor --namespace vision
  fairgate doctor --skip evictor --skip guards -o json

\b
Exit status: 0 healthy, 1 something is wrong, 2 no problem found, but not everything could be checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options."""

    policy: Path | None = of(policy_option)
    kubeconfig: Path | None = of(kubeconfig_option)
    namespace: str | None = option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="Namespace of a dry run that creates a pod, to see whether Fairgate is called. Default: the kubeconfig's "
        "own.",
    )
    skip: tuple[Check, ...] = option(
        "--skip",
        multiple=True,
        type=click.Choice(Check, case_sensitive=False),
        help="Skip a check. Repeatable.",
    )
    static: Path | None = path_option(
        "--static",
        metavar="FOLDER",
        help="The folder of `fairgate manifests --static` as an API server has it, or a copy: its files are compared "
        "with the policy.",
    )
    layout: Layout = of(layout_option)


@command(Options, epilog=_EXAMPLES, short_help="Find out what is wrong with an installation.")
def doctor(options: Options) -> None:
    """Check a whole installation: what is wrong, and what to do about it.

    The checks: the API server is not too old, servers are ready and have a leader, the evictor has a leader, all
    have the same policy in force, certificates are valid and trusted by the webhooks, webhooks and guards are
    registered as the policy requires, the API server reaches Fairgate (a dry run creates a pod, which is not
    stored), no ledger is missing or behind, no pod is too large to be evicted, no pool's `autoscaled` says something
    else than who owns its nodes, all may read what states minimums of replicas, targets of messages to people are
    reached. Other queues and schedulers that are
    installed are named, with the section of the docs to read.

    The ClusterRole fairgate-viewer is enough for all but the dry run, which needs the right to create pods in a
    namespace, and the sizes of pods, which need the right to list them. Checks for which you lack a right are reported
    as unknown.
    """
    # pydantic and rich are slow to import, and --help needs neither
    from webhook.cli.doctor.run import run  # noqa: PLC0415

    sys.exit(run(options))
