"""`fairgate page`: options and help; run.py implements it."""

import sys
from pathlib import Path

import click

from webhook.cli.options import chosen_source, namespaces_option, path_option, policy_option, world_options
from webhook.cli.service import listen_address
from webhook.server.settings import Address

_EXAMPLES = """\b
Examples:
  kubectl fairgate page
  fairgate page --no-browser
  fairgate page --policy policies --world world.yaml

\b
Exit status: 0 ended by Ctrl-C or a signal, 2 cannot start."""


@click.command(epilog=_EXAMPLES, short_help="Show the cluster in a browser, live.")
@policy_option
@world_options
@namespaces_option
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, metavar="PORT", help="Port on 127.0.0.1. Default: a free one."
)
@click.option("--no-browser", is_flag=True, help="Only print the URL.")
@click.option(
    "--domain",
    default="topology.kubernetes.io/zone",
    show_default=True,
    metavar="LABEL",
    help="Node label whose values are the domains of the map.",
)
@path_option(
    "--history",
    multiple=True,
    help="Show the last 24 hours of a file that `fairgate serve --history` wrote. Repeatable: the files of several "
    "replicas are merged. Default for a live cluster: its servers are asked.",
)
@click.option(
    "--serve",
    callback=listen_address,
    metavar="HOST:PORT",
    help="Serve it to others: each signs in with a token of the cluster, and sees the pods that they may list.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="With --serve: a name under which browsers reach it, besides localhost. Repeatable.",
)
def page(
    *,
    policy: Path | None,
    world: Path | None,
    cluster: bool,
    kubeconfig: Path | None,
    namespaces: tuple[str, ...],
    port: int,
    no_browser: bool,
    domain: str,
    history: tuple[Path, ...],
    serve: Address | None,
    hosts: tuple[str, ...],
) -> None:
    """Show the cluster in a browser, live: every GPU and its pod, teams, the line, decisions, why a pod waits.

    It serves on 127.0.0.1 with the rights of your kubeconfig, writes nothing, and prints a URL that opens it once: the
    browser then has a cookie. What you may not read is left out, with a note. A pod's page explains it as
    `fairgate explain` does, and "Would this run?" answers as `fairgate review` does.
    """
    # pydantic and aiohttp are slow to import, and --help needs neither
    from webhook.cli.page.run import Options, run  # noqa: PLC0415

    if hosts and serve is None:
        raise click.UsageError("--host needs --serve")
    source = chosen_source(world=world, cluster=cluster, kubeconfig=kubeconfig)
    options = Options(
        policy,
        source,
        namespaces,
        port,
        domain,
        opens_browser=not no_browser,
        serve=serve,
        hosts=frozenset(hosts),
        history=history,
    )
    sys.exit(run(options))
