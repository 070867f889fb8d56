"""`fairgate manifests`: all objects, and files for API servers.

What `fairgate manifests --static` writes: a folder that kube-apiserver reads, and what still is applied.

`fairgate doctor --static` reads it back.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from webhook.cli.options import command, enforce_option, of, option, path_option
from webhook.core.model.policy import Enforcement
from webhook.files import InputError
from webhook.kube.registration.guards import guards
from webhook.kube.registration.registration import ServiceReference, webhook_configurations
from webhook.kube.registration.static_files import (
    CONFIGURATION_FILE,
    DEFAULT_FOLDER,
    admission_configuration,
    can_be_static,
    definitions,
    objects_of,
    roles,
    static_files,
)
from webhook.yaml_text import DocumentError, read_documents, to_yaml

PRINTED: Final = "-"
"""Given as the folder: print all files instead of writing them."""
OBJECTS_FILE: Final = "objects.yaml"
_READ: Final = frozenset({".yaml", ".yml", ".json"})
"""Extensions of the files that kube-apiserver reads in such a folder."""
_FOR_OBJECTS: Final = (
    "# For `kubectl apply -f`, in the API of the cluster: definitions, roles, and what cannot come from a file.\n"
)
_FOR_CONFIGURATION: Final = (
    "# For kube-apiserver --admission-control-config-file (1.37), or add its plugins to the file that is there.\n"
    "# Each API server reads its own copy. What is here comes before all objects of the API, so the mutating webhook\n"
    "# runs first: a pod to which another webhook adds its first GPUs afterwards is refused, not admitted.\n"
)
_NOT_STATIC: Final = "# Not in these files, since none may hold a policy with parameters, but to be applied: {names}.\n"
_WITHOUT_CA: Final = "# There is no caBundle: the API server's host must trust the certificate. Nothing fills it in.\n"

_Json = dict[str, Any]


def rendered(definitions: Sequence[_Json], registered: Sequence[_Json], *, folder: str, has_ca: bool) -> dict[str, str]:
    """Return the content of each file by its path in the folder, which is where kube-apiserver will find it."""
    kept = [each for each in registered if not can_be_static(each)]
    names = ", ".join(each["metadata"]["name"] for each in kept if "paramKind" in each["spec"])
    head = _FOR_CONFIGURATION + (_NOT_STATIC.format(names=names) if names else "") + ("" if has_ca else _WITHOUT_CA)
    files = {CONFIGURATION_FILE: head + to_yaml(admission_configuration(folder))}
    files |= {path: to_yaml(*made) if made else "" for path, made in static_files(registered).items()}
    return {**files, OBJECTS_FILE: _FOR_OBJECTS + to_yaml(*definitions, *kept)}


def as_stream(files: Mapping[str, str]) -> str:
    """Return the files that kube-apiserver reads as one text, each after a line with its path."""
    read = {path: text for path, text in files.items() if text and path != OBJECTS_FILE}
    return "---\n".join(f"# {path}\n{text}" for path, text in read.items())


def write(files: Mapping[str, str], folder: Path) -> None:
    """Write the files, each at once: kube-apiserver reads a folder whenever it changes. Raises OSError."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.new")  # without an extension that kube-apiserver reads
        partial.write_text(text)
        os.replace(partial, target)


def read(folder: Path) -> list[_Json]:
    """Return what kube-apiserver registers by a folder, named as in the API. Raises InputError."""
    found: list[_Json] = []
    path = folder
    try:
        for path in [each for part in sorted(folder.iterdir()) if part.is_dir() for each in sorted(part.iterdir())]:
            if path.suffix in _READ:
                found += objects_of(read_documents(path.read_bytes()))
    except (OSError, DocumentError, msgspec.ValidationError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return found


# `fairgate manifests`: print the objects that register Fairgate in the API server, for `kubectl apply -f -`.


_SERVICE: Final = re.compile(r"(?P<namespace>[a-z0-9-]+)/(?P<name>[a-z0-9-]+)(?::(?P<port>[0-9]{1,5}))?")
_PORTS: Final = range(1, 65_536)


_EXAMPLES: Final = """\b
Examples:
  fairgate manifests --policy policies/default --url https://fairgate.example.org:8443 --ca certs.d/ca.crt \\
      | kubectl apply -f -
  fairgate manifests --policy policies/default --url https://10.0.0.9:8443 --ca certs.d/ca.crt \\
      --static /etc/kubernetes/fairgate

\b
Exit status: 0 printed or written, 1 the policy has problems, 2 something cannot be read or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options."""

    policy: Path = path_option("--policy", required=True, metavar="DIR", help="Folder of policy files.")
    url: str | None = option(
        "--url",
        metavar="https://HOST:PORT",
        callback=lambda *args: _url(args[2]),
        help="URL at which kube-apiserver reaches Fairgate; the certificate must have this host name.",
    )
    service: ServiceReference | None = option(
        "--service",
        metavar="NAMESPACE/NAME[:PORT]",
        callback=lambda *args: _service(args[2]),
        help="The Service in front of Fairgate's pods.",
    )
    ca: Path | None = option(
        "--ca",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="CA certificate (PEM) that issued Fairgate's certificate. Default: no caBundle, which "
        "`fairgate serve --certs-secret` or cert-manager fills in.",
    )
    with_guards: bool = option(
        "--guards/--no-guards",
        default=True,
        help="Add ValidatingAdmissionPolicies, so that only Fairgate can change what it writes.",
    )
    trusted_users: tuple[str, ...] = option(
        "--trusted-user",
        multiple=True,
        metavar="NAME",
        help="A user who may also change what Fairgate writes. Repeatable.",
    )
    static: str | None = option(
        "--static",
        is_flag=False,
        flag_value=PRINTED,
        metavar="[FOLDER]",
        help="Write files by which kube-apiserver 1.37 registers Fairgate itself (staticManifestsDir), so that no API "
        "request can remove it. FOLDER is where kube-apiserver reads them; without it they are printed.",
    )
    enforce: Enforcement | None = of(enforce_option)


@command(Options, epilog=_EXAMPLES)
def manifests(options: Options) -> None:
    """Print the objects that a policy needs in the API server, as YAML for an admin to apply.

    These are the CustomResourceDefinitions TeamLedger, Report and HeldNodes, the ClusterRoles fairgate-viewer,
    fairgate-server-kinds and fairgate-evictor-kinds, the webhook configurations and the guards
    (ValidatingAdmissionPolicies). The API server must be of Kubernetes 1.30 or newer.

    The webhooks receive only pods that the policy is about, and objects that create pods: print and apply everything
    again when the policy's resource names, namespace selectors or kinds of workloads change. Give one of --url and
    --service.

    With --static the webhooks and most guards are files for kube-apiserver: admission.yaml for its flag
    --admission-control-config-file, a folder for each admission plugin, and objects.yaml for `kubectl apply`.
    """
    from webhook.policy.documents import PolicyError  # noqa: PLC0415
    from webhook.policy.watch import load, with_enforcement  # noqa: PLC0415 - pydantic is slow to import, and --help needs none of it

    if options.static is not None and options.url is None:
        raise click.UsageError("--static needs --url: in files kube-apiserver takes a URL of a webhook, and no Service")
    if (options.url is None) == (options.service is None):
        raise click.UsageError("give either --url or --service")
    pem = options.ca.read_bytes() if options.ca is not None else None
    if pem is not None and b"-----BEGIN CERTIFICATE-----" not in pem:
        raise click.BadParameter(f"{options.ca} has no PEM certificate; give the ca.crt of Fairgate's --certs folder")
    try:
        policy = with_enforcement(load(options.policy), enforce=options.enforce)
    except PolicyError as error:
        for problem in error.problems:
            click.echo(str(problem), err=True)
        raise click.exceptions.Exit(1) from error
    registered = webhook_configurations(policy, ca_bundle_pem=pem, url=options.url, service=options.service)
    if options.with_guards and policy.enforce is not Enforcement.OFF:
        registered += guards(policy, trusted_users=options.trusted_users)
    made = [*definitions(), *roles(policy)]
    if options.static is None:
        click.echo(to_yaml(*made, *registered), nl=False)
    else:
        _write_static(made, registered, options.static, has_ca=pem is not None)


def _write_static(made: list[dict[str, Any]], registered: list[dict[str, Any]], given: str, *, has_ca: bool) -> None:
    is_printed = given == PRINTED
    folder = DEFAULT_FOLDER if is_printed else str(Path(given).absolute())
    files = rendered(made, registered, folder=folder, has_ca=has_ca)
    if is_printed:
        click.echo(as_stream(files), nl=False)
        return
    try:
        write(files, Path(folder))
    except OSError as error:
        click.echo(f"fairgate: cannot write {error.filename or folder}: {error.strerror}", err=True)
        raise click.exceptions.Exit(2) from error
    click.echo("\n".join(f"{folder}/{path}" for path in files))


def _url(given: str | None) -> str | None:
    if given is None:
        return None
    if not _is_base_url(given):
        raise click.BadParameter(f"expected https://HOST:PORT without a path, got {given}")
    return given


def _is_base_url(given: str) -> bool:
    """Whether kube-apiserver accepts this as the base of a webhook's URL: no user, query or fragment."""
    try:
        parts = urlsplit(given)
        port = parts.port or 443
    except ValueError:  # an unclosed bracket, a port out of range
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
