"""`fairgate serve`: read the flags, run the server, report in one line why it cannot start."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from webhook.cli.addons import of_serve, unread
from webhook.cli.options import (
    cannot_start,
    command,
    end_restored,
    enforce_option,
    lease_option,
    listen_address,
    log_format_option,
    of,
    option,
    path_option,
    policy_folder_option,
    run_service,
    service_kubeconfig_option,
    usual_kubeconfig,
)
from webhook.cluster.api.client import ClusterError, RestoredError
from webhook.core.model.policy import Enforcement
from webhook.observe.logs import LogFormat
from webhook.server.addons import MakeServerAddon
from webhook.server.http.replies import parse_duration
from webhook.server.root import run
from webhook.server.settings import (
    DRAIN_SECONDS,
    Address,
    CertSecret,
    FileWorld,
    LiveCluster,
    ServerSettings,
    StartupError,
)

_MIN_SECONDS: Final = 10  # certificates have a resolution of one second
_MAX_SECONDS: Final = 876_000 * 3600


def _lifetime(value: str) -> timedelta:
    try:
        seconds = parse_duration(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc
    if not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        raise click.BadParameter(f"expected from 10s to 876000h (100 years), got {value}")
    return timedelta(seconds=seconds)


_EXAMPLES: Final = """\b
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
Exit status: 0 stopped by a signal, 1 etcd was restored from a backup: start it again, 2 cannot start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options."""

    policy: Path = of(policy_folder_option)
    world: Path | None = path_option(
        "--world",
        help="Read nodes and pods from a file, as `kubectl get nodes,pods -A -o yaml` prints them; contact no cluster.",
    )
    kubeconfig: Path | None = of(service_kubeconfig_option)
    namespace: str | None = option(
        "--namespace",
        metavar="NAME",
        help="Namespace of Fairgate's own objects. Default: this pod's, or that of the kubeconfig's context, or "
        "default.",
    )
    listen: Address = option(
        "--listen",
        required=True,
        callback=listen_address,
        metavar="HOST:PORT",
        help="Address to serve HTTPS on: 127.0.0.1:8443, [::1]:8443 or :8443; with port 0 the system chooses one.",
    )
    certs: Path | None = path_option(
        "--certs",
        metavar="DIR",
        help="Folder with ca.crt, tls.crt and tls.key. If it is empty, certificates are created there and renewed; "
        "changed files are reloaded.",
    )
    certs_secret: str | None = option(
        "--certs-secret",
        metavar="NAME",
        help="Secret with the certificates of all replicas, instead of --certs. It is created and renewed, and so is "
        "the caBundle of the webhook configurations.",
    )
    cert_hosts: tuple[str, ...] = option(
        "--cert-host",
        multiple=True,
        metavar="NAME",
        help="Additional name or address in a generated certificate, such as fairgate.fairgate-system.svc. Repeatable.",
    )
    cert_lifetime: timedelta = option(
        "--cert-lifetime",
        metavar="DURATION",
        callback=lambda *args: _lifetime(args[2]),
        default="2160h",
        help="Lifetime of a generated certificate, such as 2160h or 30m. It is renewed after two thirds of it.",
    )
    ca_lifetime: timedelta = option(
        "--ca-lifetime",
        metavar="DURATION",
        callback=lambda *args: _lifetime(args[2]),
        default="87600h",
        help="Lifetime of a generated CA; at least three times --cert-lifetime.",
    )
    client_ca: Path | None = path_option(
        "--client-ca",
        help="Accept reviews only from clients with a certificate of these CAs (PEM). Probes and metrics need none.",
    )
    log_format: LogFormat = of(log_format_option)
    drain_seconds: float = option(
        "--drain-seconds",
        metavar="SECONDS",
        type=click.FloatRange(min=0),
        default=DRAIN_SECONDS,
        help="How long to continue serving, unready, after SIGTERM.",
    )
    is_static: bool = option(
        "--static-registration",
        is_flag=True,
        help="The API servers have the webhooks from files: missing webhook configurations are no problem.",
    )
    lease_seconds: int = of(lease_option)
    enforce: Enforcement | None = of(enforce_option)

    @property
    def certificates(self) -> Path | CertSecret:
        """Where the certificates are. Raises click.UsageError."""
        if self.certs_secret is not None and self.world is not None:
            raise click.UsageError(
                "--certs-secret and --world exclude each other: with --world no cluster is contacted"
            )
        if self.certs is not None and self.certs_secret is None:
            return self.certs
        if self.certs_secret is not None and self.certs is None:
            return CertSecret(self.certs_secret)
        raise click.UsageError("give either --certs or --certs-secret")


@command(Options, addons=of_serve(), epilog=_EXAMPLES)
def serve(options: Options, addons: Sequence[MakeServerAddon]) -> None:
    """Serve the admission webhooks over HTTPS.

    Policy and certificates are reloaded within seconds of an edit; invalid edits are reported and not applied.
    Any number of replicas may run for a cluster: they share one ledger, an object per team (`kubectl get teamledgers`).
    """
    if options.world is not None and options.kubeconfig is not None:
        raise click.UsageError("--world and --kubeconfig exclude each other")
    if options.ca_lifetime < 3 * options.cert_lifetime:
        raise click.UsageError("--ca-lifetime must be at least three times --cert-lifetime")
    settings = ServerSettings(
        policy=options.policy,
        world=FileWorld(options.world)
        if options.world is not None
        else LiveCluster(options.kubeconfig or usual_kubeconfig()),
        listen=options.listen,
        certs=options.certificates,
        cert_hosts=options.cert_hosts,
        cert_lifetime=options.cert_lifetime,
        ca_lifetime=options.ca_lifetime,
        client_ca=options.client_ca,
        namespace=options.namespace,
        log_format=options.log_format,
        drain_seconds=options.drain_seconds,
        lease_seconds=options.lease_seconds,
        enforce=options.enforce,
        is_static=options.is_static,
        unread=unread(),
    )
    try:
        run_service(run(settings, addons=addons))
    except RestoredError as exc:
        end_restored(exc)
    except (StartupError, ClusterError) as exc:
        cannot_start(exc)
