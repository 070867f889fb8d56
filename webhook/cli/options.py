"""Options that several commands share: the policy, the source of the world, and the output."""

import asyncio
import os
import shutil
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final, TextIO

import click

from webhook.core.model.policy import Enforcement

UNBOUNDED: Final = 1 << 16
"""The width of a pipe or a file: nothing is broken or left out."""

TERMINAL_ROWS: Final = 100
"""Rows of a list that a terminal shows unless the user asks for more."""


PATH: Final = click.Path(path_type=Path)

policy_option = click.option(
    "--policy",
    type=PATH,
    metavar="DIR",
    envvar="FAIRGATE_POLICY",
    show_envvar=True,
    help="Folder of policy files. Default for a live cluster: the policy in force there.",
)


namespaces_option = click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="Namespace whose pods to read if you may not list all pods; the kubeconfig's own is always read. Repeatable.",
)


enforce_option = click.option(
    "--enforce",
    type=click.Choice(Enforcement, case_sensitive=False),
    help="Override the policy's enforcement: off, shadow (decide and record), warn (also warn users), enforce.",
)


lease_option = click.option(
    "--lease-seconds",
    type=click.IntRange(min=3),
    default=15,
    metavar="SECONDS",
    help="Time without renewal after which another process takes the Lease; a leader that cannot renew it stops after "
    "two thirds of it.",
)


kubeconfig_option = click.option(
    "--kubeconfig",
    type=PATH,
    metavar="FILE",
    help="The cluster. Default: $KUBECONFIG, ~/.kube/config, or the cluster this pod runs in.",
)


world_option = click.option(
    "--world",
    type=PATH,
    metavar="FILE",
    help="Read a file, as `fairgate world` or `kubectl get nodes,pods -A -o yaml` writes it.",
)
cluster_option = click.option("--cluster", is_flag=True, help="Read a live cluster; nothing is written.")


def chosen_namespace(given: str, source: object) -> str:
    """Return the namespace of objects that name none: as kubectl reads it for a cluster, otherwise `default`."""
    from webhook.server.settings import LiveCluster  # noqa: PLC0415 - slow to import, and --help needs none of it

    if not given and isinstance(source, LiveCluster):
        from webhook.cluster.api.errors import ClusterError  # noqa: PLC0415
        from webhook.cluster.api.namespace import own_namespace  # noqa: PLC0415

        with suppress(ClusterError):  # the command that connects says what is wrong with the kubeconfig
            given = asyncio.run(own_namespace(source.kubeconfig))
    return given or "default"


class Layout(StrEnum):
    """Output formats."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_data(self) -> bool:
        """Whether it is for programs."""
        return self in (Layout.JSON, Layout.YAML)


history_option = click.option(
    "--history",
    type=PATH,
    metavar="FILE",
    help="A history of `fairgate serve --history`: its pods also say how long pods run, for likely starts.",
)

layout_option = click.option(
    "-o",
    "--output",
    "layout",
    type=click.Choice([Layout.TABLE, Layout.JSON, Layout.YAML], case_sensitive=False),
    default=Layout.TABLE.value,
)


table_or_json_option = click.option(
    "-o",
    "--output",
    "layout",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Table for people, JSON for programs; JSON has every row.",
)

limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Rows of the longest table that are shown; data has all. Default: 100 on a terminal, all in a pipe.",
)


def most_rows(limit: int | None) -> int:
    """Return how many rows to show of a list."""
    return limit or (TERMINAL_ROWS if sys.stdout.isatty() else sys.maxsize)


def colors() -> bool | None:
    """Return whether the user wants colors, None for on terminals: NO_COLOR forbids them, FORCE_COLOR asks for them."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR", "0") not in ("", "0") else None


def is_colored() -> bool:
    """Whether standard output has colors."""
    wanted = colors()
    return can_move(sys.stdout) if wanted is None else wanted


def shows_progress() -> bool:
    """Whether standard error shows what is under way: on a terminal, whatever colors are asked for."""
    return can_move(sys.stderr)


def can_move(stream: TextIO) -> bool:
    """Whether a stream is a terminal that understands control sequences."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """Return the width of the output: that of the terminal; without bound in a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNBOUNDED
