"""`fairgate manifests`: print what the API server must know of Fairgate, ready for `kubectl apply -f -`."""

import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import yaml

from webhook.cli.options import enforce_option
from webhook.core.model.policy import Enforcement
from webhook.kube.ledger.report_crd import report_crd
from webhook.kube.ledger.team_ledger_crd import team_ledger_crd
from webhook.kube.registration.guards import guards
from webhook.kube.registration.held_nodes import held_nodes_crd
from webhook.kube.registration.registration import ServiceReference, webhook_configurations
from webhook.kube.registration.viewer_role import viewer_role

_SERVICE: Final = re.compile(r"(?P<namespace>[a-z0-9-]+)/(?P<name>[a-z0-9-]+)(?::(?P<port>[0-9]{1,5}))?")
_PORTS: Final = range(1, 65_536)


@click.command(
    epilog="""\b
Examples:
  fairgate manifests --policy policies/default --url https://fairgate.example.org:8443 --ca certs.d/ca.crt \\
      | kubectl apply -f -

\b
Exit status: 0 printed, 1 the policy has problems, 2 something cannot be read."""
)
@click.option(
    "--policy",
    "folder",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of policy files.",
)
@click.option(
    "--url",
    metavar="https://HOST:PORT",
    callback=lambda *args: _url(args[2]),
    help="Where kube-apiserver reaches Fairgate; the certificate must name this host.",
)
@click.option(
    "--service",
    metavar="NAMESPACE/NAME[:PORT]",
    callback=lambda *args: _service(args[2]),
    help="The Service in front of Fairgate's pods.",
)
@click.option(
    "--ca",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CA certificate (PEM) that signed Fairgate's certificate. Without it caBundle is left out, for "
    "`fairgate serve --certs-secret` or cert-manager to fill in.",
)
@click.option(
    "--guards/--no-guards",
    "with_guards",
    default=True,
    show_default=True,
    help="Let the API server itself guard what only Fairgate may write, by ValidatingAdmissionPolicies.",
)
@click.option(
    "--trusted-user",
    "trusted_users",
    multiple=True,
    metavar="NAME",
    help="A user who may change what otherwise only Fairgate writes. Repeatable.",
)
@enforce_option
def manifests(
    *,
    enforce: str | None,
    folder: Path,
    url: str | None,
    service: ServiceReference | None,
    ca: Path | None,
    with_guards: bool,
    trusted_users: tuple[str, ...],
) -> None:
    """Print what a policy needs in the API server as YAML, to be applied by an admin.

    That is the definitions of TeamLedger, Report and HeldNodes, the ClusterRole fairgate-viewer, the webhook
    configurations and the guards.

    The webhooks are sent exactly those pods that the policy is about, and objects that make pods: print and apply all
    of it again when its resource names, its selectors of namespaces or its kinds of workloads change. Give one of --url
    and --service.
    """
    from webhook.policy.load import load, overridden  # noqa: PLC0415 - pydantic is slow to import, and --help needs none of it
    from webhook.policy.problems import PolicyError, PolicyUnreadable  # noqa: PLC0415

    if (url is None) == (service is None):
        raise click.UsageError("give --url or --service, one of them")
    pem = ca.read_bytes() if ca is not None else None
    if pem is not None and b"-----BEGIN CERTIFICATE-----" not in pem:
        raise click.BadParameter(f"{ca} holds no PEM certificate; give the ca.crt of Fairgate's --certs folder")
    try:
        policy = overridden(load(folder), enforce=None if enforce is None else Enforcement(enforce))
    except PolicyError as error:
        for problem in error.problems:
            click.echo(str(problem), err=True)
        raise click.exceptions.Exit(1) from error
    except PolicyUnreadable as error:
        click.echo(str(error), err=True)
        raise click.exceptions.Exit(2) from error
    definitions = [team_ledger_crd(), report_crd(), held_nodes_crd()]
    registration = webhook_configurations(policy, ca_bundle_pem=pem, url=url, service=service)
    made = [*definitions, viewer_role(), *registration]
    if with_guards and policy.enforce is not Enforcement.OFF:
        made += guards(policy, trusted_users=trusted_users)
    click.echo(yaml.dump_all(made, Dumper=_Dumper, sort_keys=False, width=2**16), nl=False)


class _Dumper(yaml.SafeDumper):
    """Writes repeated parts out: aliases are legal YAML, but nobody reads them gladly."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _url(given: str | None) -> str | None:
    if given is None:
        return None
    if not _is_base_url(given):
        raise click.BadParameter(f"expected https://HOST:PORT without a path, got {given}")
    return given


def _is_base_url(given: str) -> bool:
    """Tell whether kube-apiserver takes this as the beginning of a webhook's URL: it refuses user, query, fragment."""
    try:
        parts = urlsplit(given)
        port = parts.port or 443
    except ValueError:  # a bracket left open, a port beyond the last one
        return False
    is_bare = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    return parts.scheme == "https" and bool(parts.hostname) and port in _PORTS and is_bare


def _service(given: str | None) -> ServiceReference | None:
    if given is None:
        return None
    found = _SERVICE.fullmatch(given)
    port = int(found["port"] or 443) if found else 0
    if found is None or port not in _PORTS:
        raise click.BadParameter(f"expected NAMESPACE/NAME or NAMESPACE/NAME:PORT, got {given}")
    return ServiceReference(found["namespace"], found["name"], port)
