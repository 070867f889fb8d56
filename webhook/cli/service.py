"""What the commands that serve share: options, the event loop, and the line on why they cannot start."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn

import click
import uvloop

from webhook.cli.garbage import collect_garbage, leave_out_what_stays
from webhook.cli.options import PATH
from webhook.cluster.api.errors import RestoredError
from webhook.observe.logs import LogFormat
from webhook.server.settings import Address, parse_address

policy_folder_option = click.option("--policy", type=PATH, metavar="DIR", required=True, help="Folder of policy files.")

log_format_option = click.option(
    "--log-format",
    type=click.Choice(LogFormat, case_sensitive=False),
    default=LogFormat.JSON.value,
    help="Format of the log on standard error: for machines or for people.",
)


notify_secrets_option = click.option(
    "--notify-secrets",
    type=PATH,
    metavar="DIR",
    help="Folder of the files that `notify` in the policy names: addresses, tokens, CAs. Read for each message.",
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
