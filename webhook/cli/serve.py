"""`fairgate serve`: read the flags, run the server, report in one line why it cannot start."""

from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from webhook.cli.options import enforce_option, lease_option, path_option
from webhook.cli.service import (
    cannot_start,
    listen_address,
    log_format_option,
    policy_folder_option,
    run_service,
)
from webhook.core.model.policy import Enforcement
from webhook.history.store import DEFAULT_DAYS, DEFAULT_MEGABYTES, Bounds
from webhook.observe.logs import LogFormat
from webhook.server.http.request_target import parse_duration
from webhook.server.root import run
from webhook.server.settings import (
    DRAIN_SECONDS,
    Address,
    CertSecret,
    LiveCluster,
    Settings,
    StartupError,
    WorldFile,
)

_MIN_SECONDS: Final = 10  # certificates have a resolution of one second
_MAX_SECONDS: Final = 876_000 * 3600


def _certs(folder: Path | None, secret: str | None, world: Path | None) -> Path | CertSecret:
    if secret is not None and world is not None:
        raise click.UsageError("--certs-secret and --world exclude each other: with --world no cluster is contacted")
    if folder is not None and secret is None:
        return folder
    if secret is not None and folder is None:
        return CertSecret(secret)
    raise click.UsageError("give either --certs or --certs-secret")


def _lifetime(value: str) -> timedelta:
    try:
        seconds = parse_duration(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc
    if not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        raise click.BadParameter(f"expected from 10s to 876000h (100 years), got {value}")
    return timedelta(seconds=seconds)


@click.command(
    epilog="""\b
Examples:
  fairgate serve --policy policies/default --world world.yaml --listen 127.0.0.1:8443 --certs certs.d
  fairgate serve --policy policies/default --kubeconfig ~/.kube/config \\
      --listen 0.0.0.0:8443 --cert-host fairgate.example.org --certs certs.d
  fairgate serve --policy /etc/fairgate/policy --listen :8443 --certs-secret fairgate-certs \\
      --cert-host fairgate.fairgate-system.svc

\b
Endpoints: POST /mutate, /validate, /workloads, /claims, /jobs and /gangs; GET /healthz, /readyz and /metrics, with
--history also /usage.
On SIGTERM it is unready at once, serves for --drain-seconds, finishes open requests, and exits.
Exit status: 0 stopped by a signal, 2 cannot start."""
)
@policy_folder_option
@path_option(
    "--world",
    help="Read nodes and pods from a file, as `kubectl get nodes,pods -A -o yaml` prints them; contact no cluster.",
)
@path_option(
    "--kubeconfig",
    help="The cluster to watch. Without --world and --kubeconfig: the cluster this pod runs in.",
)
@click.option(
    "--namespace",
    metavar="NAME",
    help="Namespace of Fairgate's own objects. Default: this pod's, or that of the kubeconfig's context, or default.",
)
@click.option(
    "--listen",
    required=True,
    callback=listen_address,
    metavar="HOST:PORT",
    help="Address to serve HTTPS on: 127.0.0.1:8443, [::1]:8443 or :8443; with port 0 the system chooses one.",
)
@path_option(
    "--certs",
    metavar="DIR",
    help="Folder with ca.crt, tls.crt and tls.key. If it is empty, certificates are created there and renewed; changed "
    "files are reloaded.",
)
@click.option(
    "--certs-secret",
    metavar="NAME",
    help="Secret with the certificates of all replicas, instead of --certs. It is created and renewed, and so is the "
    "caBundle of the webhook configurations.",
)
@click.option(
    "--cert-host",
    "cert_hosts",
    multiple=True,
    metavar="NAME",
    help="Additional name or address in a generated certificate, such as fairgate.fairgate-system.svc. Repeatable.",
)
@click.option(
    "--cert-lifetime",
    metavar="DURATION",
    callback=lambda *args: _lifetime(args[2]),
    default="2160h",
    show_default=True,
    help="Lifetime of a generated certificate, such as 2160h or 30m. It is renewed after two thirds of it.",
)
@click.option(
    "--ca-lifetime",
    metavar="DURATION",
    callback=lambda *args: _lifetime(args[2]),
    default="87600h",
    show_default=True,
    help="Lifetime of a generated CA; at least three times --cert-lifetime.",
)
@path_option(
    "--client-ca",
    help="Accept reviews only from clients with a certificate of these CAs (PEM). Probes and metrics need none.",
)
@log_format_option
@click.option(
    "--drain-seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=DRAIN_SECONDS,
    show_default=True,
    help="How long to continue serving, unready, after SIGTERM.",
)
@path_option(
    "--history",
    help="Record usage in this file, for `fairgate usage` and `fairgate replay`. Each replica needs its own.",
)
@click.option(
    "--history-days",
    type=click.IntRange(min=1),
    default=DEFAULT_DAYS,
    show_default=True,
    metavar="DAYS",
    help="How long the history is kept.",
)
@click.option(
    "--history-megabytes",
    type=click.IntRange(min=16),
    default=DEFAULT_MEGABYTES,
    show_default=True,
    metavar="MB",
    help="How large its file may become; before that the oldest days are deleted.",
)
@lease_option
@enforce_option
def serve(
    *,
    enforce: str | None,
    policy: Path,
    world: Path | None,
    kubeconfig: Path | None,
    namespace: str | None,
    listen: Address,
    certs: Path | None,
    certs_secret: str | None,
    cert_hosts: tuple[str, ...],
    cert_lifetime: timedelta,
    ca_lifetime: timedelta,
    client_ca: Path | None,
    log_format: LogFormat,
    drain_seconds: float,
    lease_seconds: int,
    history: Path | None,
    history_days: int,
    history_megabytes: int,
) -> None:
    """Serve the admission webhooks over HTTPS.

    Policy and certificates are reloaded within seconds of an edit; invalid edits are reported and not applied.
    Any number of replicas may run for a cluster: they share one ledger, an object per team (`kubectl get teamledgers`).
    """
    if world is not None and kubeconfig is not None:
        raise click.UsageError("--world and --kubeconfig exclude each other")
    if ca_lifetime < 3 * cert_lifetime:
        raise click.UsageError("--ca-lifetime must be at least three times --cert-lifetime")
    settings = Settings(
        policy=policy,
        world=WorldFile(world) if world is not None else LiveCluster(kubeconfig),
        listen=listen,
        certs=_certs(certs, certs_secret, world),
        cert_hosts=cert_hosts,
        cert_lifetime=cert_lifetime,
        ca_lifetime=ca_lifetime,
        client_ca=client_ca,
        namespace=namespace,
        log_format=log_format,
        drain_seconds=drain_seconds,
        lease_seconds=lease_seconds,
        enforce=None if enforce is None else Enforcement(enforce),
        history=history,
        history_bounds=Bounds(days=history_days, megabytes=history_megabytes),
    )
    try:
        run_service(run(settings))
    except StartupError as exc:
        cannot_start(exc)
