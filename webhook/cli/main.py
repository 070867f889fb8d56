"""The group; commands by name.

The `fairgate` command: one group, each subcommand imported only when it is called.
"""

import sys
from typing import Any, Final

import click
from click.shell_completion import ShellComplete

from webhook import __version__
from webhook.cli import addons
from webhook.cli.options import colors
from webhook.cli.output import ending_well

COMMANDS: Final = {
    "bypassed": "webhook.cli.bypassed:bypassed",
    "doctor": "webhook.cli.doctor.command:doctor",
    "evict": "webhook.cli.evict:evict",
    "explain": "webhook.cli.explain.command:explain",
    "manifests": "webhook.cli.manifests:manifests",
    "policy": "webhook.cli.policy:policy",
    "queue": "webhook.cli.queue.command:queue",
    "report": "webhook.cli.report:report",
    "review": "webhook.cli.review.command:review",
    "serve": "webhook.cli.serve:serve",
    "status": "webhook.cli.status.command:status",
    "tryout": "webhook.cli.tryout:tryout",
    "uninstall": "webhook.cli.uninstall:uninstall",
    "version": "webhook.cli.main:version",
    "world": "webhook.cli.world:world",
    **addons.commands(),
}

_OF_POLICY: Final = frozenset({"check", "diff", "from-quotas", "schema"})
"""Commands of `fairgate policy`, for a hint if they are called one level up."""


class _LazyGroup(click.Group):
    """Imports only the subcommand that is called: `policy check` needs no API client."""

    def main(self, *args: Any, **more: Any) -> Any:  # noqa: ANN401 - of click
        with ending_well():
            return super().main(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        ctx.color = colors()
        with ending_well():  # inside of click, which ends with the status of a refusal
            return super().invoke(ctx)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = addons.load(COMMANDS[cmd_name])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            name = error.command_name
            if name in _OF_POLICY:
                raise click.UsageError(f"No such command '{name}'. Did you mean 'policy {name}'?", ctx) from None
            raise click.NoSuchCommand(name, possibilities=COMMANDS, ctx=ctx) from None


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
First steps:
  fairgate tryout                        without a cluster: see one decision
  fairgate policy check policies/default
  fairgate status --help                 who uses which GPUs, what would fit now
  fairgate bypassed --help               which pods hold GPUs without a decision of Fairgate
  fairgate queue --help                  which pods are queued, for what, and for how long
  fairgate defragment --help             which moves of running pods would make room for those that wait
  fairgate page --help                   all of that in a browser, live
  fairgate explain --help                why a pod is admitted, refused or waiting
  fairgate review --help                 whether manifests would be admitted
  fairgate simulate --help               how long a load would wait under a policy
  fairgate serve --help                  run the webhook for a cluster, then:
  fairgate manifests --help              register it in the API server
  fairgate doctor --help                 whether an installation is healthy
  fairgate usage --help                  GPU-hours by team, user or model, over weeks
  fairgate replay --help                 what recorded pods would get under another policy
  fairgate uninstall --help              take it out of a cluster; nothing stays stuck""",
)
@click.version_option(__version__, prog_name="fairgate")
def main() -> None:
    """Fair GPU sharing by an admission webhook, with the stock scheduler."""


@click.command(short_help="Print the version.")
def version() -> None:
    """Print the version of this command; `fairgate doctor` compares those of the processes."""
    click.echo(f"fairgate, version {__version__}")


def plugin() -> None:
    """Run as `kubectl fairgate`."""
    main(prog_name="kubectl fairgate")


# `kubectl_complete-fairgate`: kubectl calls it to complete `kubectl fairgate …`.


# Further completions that kubectl offers, as numbers of cobra's ShellCompDirective.
_FILES: Final = 0
_NOTHING: Final = 4
_FOLDERS: Final = 16


def kubectl_complete() -> None:
    """Print one completion per line, with its help after a tab; the last line has the directive."""
    *words, incomplete = sys.argv[1:] or [""]
    directive = _NOTHING
    for item in ShellComplete(main, {}, "kubectl fairgate", "").get_completions(words, incomplete):
        match item.type:
            case "file":
                directive = _FILES
            case "dir":
                directive = _FOLDERS
            case _:
                click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{directive}")
