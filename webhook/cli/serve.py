"""`fairgate serve`: read the flags, run the server, say in one line why it cannot start."""

import asyncio
import sys
from pathlib import Path

import click
import uvloop

from webhook.observe.logs import LogFormat
from webhook.server.root import run
from webhook.server.settings import (
    DRAIN_SECONDS,
    Address,
    LiveCluster,
    Settings,
    StartupError,
    WorldFile,
    parse_address,
)


def _address(_ctx: click.Context, _param: click.Parameter, value: str) -> Address:
    try:
        return parse_address(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


@click.command(
    epilog="""\b
Examples:
  fairgate serve --policy policies/default --world world.yaml --listen 127.0.0.1:8443 --certs certs.d
  fairgate serve --policy policies/default --kubeconfig ~/.kube/config \\
      --listen 0.0.0.0:8443 --cert-host fairgate.example.org --certs certs.d

\b
It answers POST /mutate and /validate, GET /healthz, /readyz and /metrics.
SIGTERM: unready at once, serves on for --drain-seconds, finishes what is in flight, exits.
Exit status: 0 stopped by a signal, 2 it cannot start."""
)
@click.option("--policy", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder of policy files.")
@click.option(
    "--world",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Nodes and pods from a file, as `kubectl get nodes,pods -A -o yaml` prints them; no cluster is contacted.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The cluster to watch. Without --world and --kubeconfig: the cluster this pod runs in.",
)
@click.option(
    "--namespace",
    metavar="NAME",
    help="Where Fairgate's own objects are kept. Default: this pod's, or that of the kubeconfig's context, or default.",
)
@click.option(
    "--listen",
    required=True,
    callback=_address,
    metavar="HOST:PORT",
    help="Where to serve HTTPS: 127.0.0.1:8443, [::1]:8443 or :8443; port 0 lets the system choose one.",
)
@click.option(
    "--certs",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder with ca.crt, tls.crt and tls.key. An empty one is filled and kept fresh; changed files are loaded.",
)
@click.option(
    "--cert-host",
    "cert_hosts",
    multiple=True,
    metavar="NAME",
    help="One more name or address for a self-made certificate, such as fairgate.fairgate-system.svc. Repeatable.",
)
@click.option(
    "--log-format",
    type=click.Choice(LogFormat, case_sensitive=False),
    default=LogFormat.JSON.value,
    show_default=True,
    help="Lines on standard error: for machines or for people.",
)
@click.option(
    "--drain-seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=DRAIN_SECONDS,
    show_default=True,
    help="How long to serve on, unready, after SIGTERM.",
)
@click.option(
    "--trusted-user",
    "trusted_users",
    multiple=True,
    metavar="NAME",
    help="A user who may change what Fairgate wrote on pods. Repeatable.",
)
def serve(
    *,
    policy: Path,
    world: Path | None,
    kubeconfig: Path | None,
    namespace: str | None,
    listen: Address,
    certs: Path,
    cert_hosts: tuple[str, ...],
    log_format: LogFormat,
    drain_seconds: float,
    trusted_users: tuple[str, ...],
) -> None:
    """Serve the admission webhooks over HTTPS.

    Policy and certificates are watched: edits are live within seconds, broken ones are reported and left out.
    Run one replica: this version keeps its ledger in memory.
    """
    if world is not None and kubeconfig is not None:
        raise click.UsageError("--world and --kubeconfig exclude each other: a world comes from one of them")
    settings = Settings(
        policy=policy,
        world=WorldFile(world) if world is not None else LiveCluster(kubeconfig, namespace),
        listen=listen,
        certs=certs,
        cert_hosts=cert_hosts,
        log_format=log_format,
        drain_seconds=drain_seconds,
        trusted_users=trusted_users,
    )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(settings))
    except StartupError as exc:
        click.echo(f"fairgate: cannot start: {exc}", err=True)
        sys.exit(2)
