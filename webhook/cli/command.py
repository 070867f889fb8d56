"""Commands whose options are the fields of a class: each option is written once, with its name, type and help."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from webhook.cli.options import PATH, cluster_option, kubeconfig_option, namespaces_option, policy_option, world_option
from webhook.input_error import InputError

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
    **attributes: Any,  # noqa: ANN401
) -> Callable[[Callable[[_Options], None]], click.Command]:
    """Return the decorator of a command that is called with its options; attributes as of `click.command`.

    An InputError ends it with what is wrong. Its help shows the default of every option.
    """

    def decorate(run: Callable[[_Options], None]) -> click.Command:
        def call(**values: Any) -> None:  # noqa: ANN401
            try:
                run(options(**values))
            except InputError as error:
                from webhook.cli.terminal import print_problems  # noqa: PLC0415 - slow to import, and --help needs none

                print_problems(error)
                sys.exit(UNUSABLE)

        call.__doc__ = run.__doc__
        found: Callable[..., None] = call
        for each in reversed(fields(options)):
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
