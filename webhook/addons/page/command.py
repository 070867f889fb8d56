"""`fairgate page`: options and help; run.py implements it."""

from dataclasses import dataclass
from pathlib import Path

import click

from webhook.cli.options import PolicyOptions, command, listen_address, option, path_option
from webhook.server.settings import Address

_EXAMPLES = """\b
Examples:
  kubectl fairgate page
  fairgate page --no-browser
  fairgate page --policy policies --world world.yaml

\b
Exit status: 0 ended by Ctrl-C or a signal, 2 cannot start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(PolicyOptions):
    """The user's options. `serve` is the address for others, None on this machine alone."""

    port: int = option(
        "--port",
        type=click.IntRange(0, 65_535),
        default=0,
        metavar="PORT",
        help="Port on 127.0.0.1. Default: a free one.",
    )
    no_browser: bool = option("--no-browser", is_flag=True, help="Only print the URL.")
    domain: str = option(
        "--domain",
        default="topology.kubernetes.io/zone",
        metavar="LABEL",
        help="Node label whose values are the domains of the map.",
    )
    history: tuple[Path, ...] = path_option(
        "--history",
        multiple=True,
        help="Show the last 24 hours of a file that `fairgate serve --history` wrote. Repeatable: the files of several "
        "replicas are merged. Default for a live cluster: its servers are asked.",
    )
    serve: Address | None = option(
        "--serve",
        callback=listen_address,
        metavar="HOST:PORT",
        help="Serve it to others: each signs in with a token of the cluster, and sees the pods that they may list.",
    )
    hosts: tuple[str, ...] = option(
        "--host",
        multiple=True,
        metavar="NAME",
        help="With --serve: a name under which browsers reach it, besides localhost. Repeatable.",
    )


@command(Options, epilog=_EXAMPLES, short_help="Show the cluster in a browser, live.")
def page(options: Options) -> None:
    """Show the cluster in a browser, live: every GPU and its pod, teams, the queue, decisions, why a pod waits.

    It serves on 127.0.0.1 with the rights of your kubeconfig, writes nothing, and prints a URL that opens it once: the
    browser then has a cookie. What you may not read is left out, with a note. A pod's page explains it as
    `fairgate explain` does, and "Would this run?" answers as `fairgate review` does.
    """
    # pydantic and aiohttp are slow to import, and --help needs neither
    from webhook.addons.page.run import run  # noqa: PLC0415

    if options.hosts and options.serve is None:
        raise click.UsageError("--host needs --serve")
    run(options)
