"""Options, commands, completion.

Garbage collection in a service: what it keeps of a cluster is not traversed again and again.

A world is a tree of values, which counting references frees. The collector is needed for cycles only, and those that a
request leaves are young. A collection takes 0.5 to 2 us an object, so one of 400,000 objects would delay all decisions
by 0.3 s and more. Here what has survived two collections is left out from then on (`gc.freeze`).

The interpreter collects once 5,000 more objects were made than freed. Where new objects replace old ones, as with each
event of a pod, that never comes, while the young ones become hundreds of thousands. So they are collected by time, too.

A cycle that outlives two collections would stay for good. The code leaves none, but libraries may, and what clients
send may make them: once memory has doubled, and the process has little to do, all of it is collected.
"""

import asyncio
import gc
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO, TypeVar

import click
import uvloop

from webhook.cluster.api.client import RestoredError
from webhook.core.model.policy import Enforcement
from webhook.files import InputError, in_context
from webhook.observe.logs import LogFormat
from webhook.server.settings import Address, parse_address

YOUNG: Final = 5_000
"""New objects, less those that were freed, after which the collector looks at them. Its default of 700 comes every few
pods, and finds little."""

_OLDER: Final = 1
"""After so many such collections what survived them is looked at again, and then left out."""

_NEVER: Final = 1_000_000

_STATM: Final = Path("/proc/self/statm")

LOOK_SECONDS: Final = 0.1
"""How often young objects are collected, however few there seem to be."""

_LOOKS: Final = 100
"""After so many it is asked whether all is to be collected."""

QUIET_SHARE: Final = 0.1
"""Part of a core below which a process has little to do: a collection of all delays each request by a second or two."""

SPARE_KIB: Final = 200 * 1024
"""Memory beyond twice as much as after the last collection of all, which a process may use before the next one."""


def leave_out_what_stays() -> None:
    """Collect young garbage only, in this process, from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, _OLDER, _NEVER)
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


async def collect_garbage() -> None:
    """Collect young objects again and again, and all once memory has doubled and little is to be done, until cancelled.

    All is collected at most once while a process takes in a large cluster, and then only if garbage has gathered.
    """
    most = _most_kib()
    while True:
        began, used = time.monotonic(), time.process_time()
        for number in range(_LOOKS):
            await asyncio.sleep(LOOK_SECONDS)
            gc.collect(number % 2)
        is_quiet = time.process_time() - used <= QUIET_SHARE * (time.monotonic() - began)
        if is_quiet and _resident_kib() > most:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            most = _most_kib()


def _resident_kib() -> int:
    """Return the memory of this process; getrusage gives a peak that it has from the process that started it."""
    if not _STATM.exists():
        return 0  # elsewhere than on Linux all is never collected
    return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize() // 1024


def _most_kib() -> int:
    return 2 * _resident_kib() + SPARE_KIB


def _freeze_survivors(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"]:
        gc.freeze()


# Options that several commands share: the policy, the source of the world, and the output.


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


def _namespaces(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return -n, and -A as kubectl has it: all namespaces is the default here."""
    named = click.option("-n", "--namespace", "namespaces", multiple=True, metavar="NAME", help=help_text)
    everything = click.option(
        "-A", "--all-namespaces", is_flag=True, expose_value=False, help="All namespaces, which is the default."
    )
    return lambda found: everything(named(found))


namespaces_option = _namespaces(
    "Namespace whose pods to read if you may not list all pods; the kubeconfig's own is always read. Repeatable."
)
only_namespaces_option = _namespaces(
    "Show the pods of this namespace only. If you may not list all pods, the kubeconfig's own is read, too. Repeatable."
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


def _in_context(context: click.Context, _param: click.Parameter, kubeconfig: Path | None) -> Path | None:
    """Return the kubeconfig with the context that the user chose, for click."""
    if not (name := context.meta.get(_CONTEXT)):
        return kubeconfig
    from webhook.cli.world_source import default_kubeconfig  # noqa: PLC0415 - slow to import, and --help needs none

    if (found := kubeconfig or default_kubeconfig()) is None:
        raise click.BadParameter("there is no kubeconfig", param_hint="--context")
    return in_context(found, name)


def _kubeconfig(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return --kubeconfig, and --context, which is read first and chooses in it."""
    file = click.option("--kubeconfig", type=PATH, metavar="FILE", callback=_in_context, help=help_text)
    chosen = click.option(
        "--context",
        metavar="NAME",
        expose_value=False,
        is_eager=True,
        callback=lambda context, _param, name: context.meta.update({_CONTEXT: name}),
        help="Context of the kubeconfig. Default: its current one.",
    )
    return lambda found: file(chosen(found))


_CONTEXT: Final = "fairgate.context"

kubeconfig_option = _kubeconfig("The cluster. Default: $KUBECONFIG, ~/.kube/config, or the cluster this pod runs in.")


world_option = click.option(
    "--world",
    type=PATH,
    metavar="FILE",
    help="Read a file, as `fairgate world` or `kubectl get nodes,pods -A -o yaml` writes it.",
)
cluster_option = click.option("--cluster", is_flag=True, help="Read a live cluster; nothing is written.")


service_kubeconfig_option = _kubeconfig(
    "The cluster to watch. Default: the cluster this pod runs in; elsewhere $KUBECONFIG or ~/.kube/config."
)


def usual_kubeconfig() -> Path | None:
    """Return the kubeconfig of a service that names none: kubectl's; None in a pod, whose own account it uses."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    from webhook.cli.world_source import default_kubeconfig  # noqa: PLC0415 - slow to import, and no pod needs it

    return default_kubeconfig()


def chosen_namespace(given: str, source: object) -> str:
    """Return the namespace of objects that name none: as kubectl reads it for a cluster, otherwise `default`."""
    from webhook.server.settings import LiveCluster  # noqa: PLC0415 - slow to import, and --help needs none of it

    if not given and isinstance(source, LiveCluster):
        from webhook.cluster.api.client import ClusterError  # noqa: PLC0415
        from webhook.cluster.api.requests import own_namespace  # noqa: PLC0415

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


# Commands whose options are the fields of a class: each option is written once, with its name, type and help.


if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from webhook.cli.world_source import Source

_Options = TypeVar("_Options", bound="DataclassInstance")
_OPTION: Final = "option"
UNUSABLE: Final = 2
"""The exit status of a command that cannot use what it reads."""


def of(shared: Callable[..., Any]) -> Any:  # noqa: ANN401 - a field of any type
    """Return the field that an option of webhook/cli/options.py fills, which has the name of the field."""
    return field(metadata={_OPTION: lambda _name: shared})


def option(*names: str, **attributes: Any) -> Any:  # noqa: ANN401 - a field of any type, click's own attributes
    """Return the field that an option fills; names and attributes as of `click.option`.

    Help does not show a default that stands for another one, such as "" or 0, unless `show_default` says so.
    """
    shown = {"show_default": False} if attributes.get("default", True) in ("", 0) else {}
    attributes = shown | attributes
    return field(metadata={_OPTION: lambda name: click.option(*names, name, **attributes)})


def path_option(*names: str, metavar: str = "FILE", **attributes: Any) -> Any:  # noqa: ANN401
    """Return the field that an option fills whose value is a path."""
    return option(*names, type=PATH, metavar=metavar, **attributes)


def argument(**attributes: Any) -> Any:  # noqa: ANN401
    """Return the field that an argument fills; attributes as of `click.argument`."""
    return field(metadata={_OPTION: lambda name: click.argument(name, **attributes)})


def command(
    options: type[_Options],
    *,
    addons: Sequence[Any] | None = None,
    **attributes: Any,  # noqa: ANN401
) -> Callable[[Callable[..., None]], click.Command]:
    """Return the decorator of a command that is called with its options; attributes as of `click.command`.

    An InputError ends it with what is wrong. Its help shows the default of every option. With `addons` it is called
    with these, too: those that are classes of options as their options.
    """
    several: list[Any] = [options, *(each for each in addons or () if is_dataclass(each))]

    def decorate(run: Callable[..., None]) -> click.Command:
        def call(**values: Any) -> None:  # noqa: ANN401
            def made(of: Any) -> Any:  # noqa: ANN401
                return of(**{each.name: values[each.name] for each in fields(of)}) if of in several else of

            try:
                run(made(options), *(() if addons is None else ([made(each) for each in addons],)))
            except InputError as error:
                from webhook.cli.grid import print_problems  # noqa: PLC0415 - slow to import, and --help needs none

                print_problems(error)
                sys.exit(UNUSABLE)

        call.__doc__ = run.__doc__
        found: Callable[..., None] = call
        for each in reversed([each for of in several for each in fields(of)]):
            found = each.metadata[_OPTION](each.name)(found)
        context = {"show_default": True}
        return click.command(run.__name__, cls=click.Command, context_settings=context, **attributes)(found)

    return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """The world that a command reads."""

    world: Path | None = of(world_option)
    cluster: bool = of(cluster_option)
    kubeconfig: Path | None = of(kubeconfig_option)

    @property
    def source(self) -> "Source":
        """The source that the options name; by default the cluster."""
        from webhook.cli.world_source import default_kubeconfig  # noqa: PLC0415 - slow to import, and --help needs none
        from webhook.server.settings import FileWorld, LiveCluster  # noqa: PLC0415

        if self.world is None:
            return LiveCluster(self.kubeconfig or default_kubeconfig())
        if self.cluster or self.kubeconfig is not None:
            raise click.UsageError("--world and --cluster exclude each other")
        return FileWorld(self.world)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions(WorldOptions):
    """The world that a command reads, or what of it may be read, and a policy."""

    policy: Path | None = of(policy_option)
    namespaces: tuple[str, ...] = of(namespaces_option)


# What the commands that serve share: options, the event loop, and the line on why they cannot start.


policy_folder_option = click.option("--policy", type=PATH, metavar="DIR", required=True, help="Folder of policy files.")

log_format_option = click.option(
    "--log-format",
    type=click.Choice(LogFormat, case_sensitive=False),
    default=LogFormat.JSON.value,
    help="Format of the log on standard error: for machines or for people.",
)


def listen_address(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Address | None:
    """Parse the value of --listen, for click."""
    if value is None:
        return None
    try:
        return parse_address(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


def run_service(main: Coroutine[Any, Any, None]) -> None:
    """Run a service on uvloop until it ends."""
    leave_out_what_stays()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_collecting(main))


async def _collecting(main: Coroutine[Any, Any, None]) -> None:
    collector = asyncio.create_task(collect_garbage())
    try:
        await main
    finally:
        collector.cancel()


def end_restored(why: RestoredError) -> NoReturn:
    """Print that a service ends because etcd was restored, and exit with status 1: what runs it starts it again."""
    click.echo(f"fairgate: stopped, to start again with what the cluster is now: {why}", err=True)
    sys.exit(1)


def cannot_start(why: object) -> NoReturn:
    """Print why a service cannot start, and exit with status 2."""
    click.echo(f"fairgate: cannot start: {why}", err=True)
    sys.exit(2)
