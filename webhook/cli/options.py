"""The options that several commands share: the policy, the world they look at, and how to write what was found."""

import os
import shutil
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from webhook.cli.world_source import Source

_Command = TypeVar("_Command", bound=Callable[..., Any])

policy_option = click.option(
    "--policy",
    envvar="FAIRGATE_POLICY",
    show_envvar=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of policy files. Default, of a live cluster: the policy that is in force there.",
)


namespaces_option = click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="Whose pods to read where you may not list those of all namespaces, beside the kubeconfig's own. Repeatable.",
)


enforce_option = click.option(
    "--enforce",
    type=click.Choice(["off", "shadow", "warn", "enforce"]),
    help="How far to go, whatever policy says: off, shadow (judge and record), warn (users too), enforce.",
)


lease_option = click.option(
    "--lease-seconds",
    type=click.IntRange(min=3),
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="How long the Lease must stand still before another process takes over; a leader stops at two thirds of it.",
)


def world_options(command: _Command) -> _Command:
    """Add --world, --cluster and --kubeconfig."""
    for option in (
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The cluster. Default: $KUBECONFIG, ~/.kube/config, or the cluster this pod runs in.",
        ),
        click.option("--cluster", is_flag=True, help="Look at a live cluster, which is only read."),
        click.option(
            "--world",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Look at a file, as `fairgate world` or `kubectl get nodes,pods -A -o yaml` writes it.",
        ),
    ):
        command = option(command)
    return command


def chosen_source(*, world: Path | None, cluster: bool, kubeconfig: Path | None) -> "Source":
    """Tell which world was asked for; the cluster where none was."""
    from webhook.cli.world_source import default_kubeconfig  # noqa: PLC0415 - slow to import, and --help needs none of it
    from webhook.server.settings import LiveCluster, WorldFile  # noqa: PLC0415

    if world is not None:
        if cluster or kubeconfig is not None:
            raise click.UsageError("--world and --cluster exclude each other: a world comes from one of them")
        return WorldFile(world)
    return LiveCluster(kubeconfig or default_kubeconfig())


class Layout(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


def is_colored() -> bool:
    """Tell whether colour helps: on a terminal, unless the user said no."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def columns() -> int:
    """Give the columns to fill: those of the terminal; a pipe has room for all."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 500
