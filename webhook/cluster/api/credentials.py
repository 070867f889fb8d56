"""The API server's address and our credentials: the one module that imports kubernetes_asyncio.

Only its configuration loaders are used. Its request layer is not: it decodes everything, has no timeout for a
connection that went silent, and never renews the credentials that a kubeconfig's exec plugin returned.
"""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config

from webhook.cluster.api.client import ClusterError
from webhook.files import context_of

Headers = tuple[tuple[str, str], ...]
"""HTTP headers; a name may come several times."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """One loaded set: the server, its TLS settings, the proxy, and the current token.

    `tls` is True (aiohttp's default) for plain HTTP, such as kubectl proxy serves. `tls_name` is the name expected in
    the server's certificate, None for the host's own; `proxy` None for no proxy. `impersonation` are the kubeconfig's
    impersonation headers.
    """

    server: str
    tls: ssl.SSLContext | Literal[True]
    tls_name: str | None
    proxy: str | None
    impersonation: Headers
    configuration: Configuration

    async def headers(self) -> Headers:
        """Return the headers of the next request; in a pod, the token file is read again every minute."""
        try:
            token = await self.configuration.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError) as cause:
            raise ClusterError(f"cannot read the service account's token: {cause}") from cause
        # A token file may end in a newline, which would split the header.
        authorization = (("Authorization", token.strip()),) if token else ()
        return (*authorization, *self.impersonation)


async def load(kubeconfig: Path | None, *, service_account: Path) -> Credentials:
    """Load credentials from the context of a kubeconfig, or those of this process's pod.

    Raises ClusterError if there are none or they cannot be used. Runs exec plugins.
    """
    configuration = Configuration()
    source = f"kubeconfig {kubeconfig}" if kubeconfig else f"service account in {service_account}"
    try:
        if kubeconfig is None:
            _load_pod(configuration, service_account)
        else:
            await _load_file(configuration, kubeconfig)
        impersonation = await asyncio.to_thread(_impersonation, kubeconfig) if kubeconfig else ()
        tls = await asyncio.to_thread(_tls, configuration)
    except ClusterError:
        raise
    except (ssl.SSLError, OSError) as cause:
        raise ClusterError(f"{source}: its CA or client certificate cannot be used: {cause}") from cause
    except Exception as cause:  # a broken file raises ConfigException, KeyError, TypeError, AssertionError, YAMLError…
        raise ClusterError(f"{source}: {cause or type(cause).__name__}") from cause
    server = str(configuration.host).rstrip("/")
    return Credentials(
        server=server,
        tls=tls,
        tls_name=configuration.tls_server_name,
        proxy=configuration.proxy or _proxy_of_environment(server),
        impersonation=impersonation,
        configuration=configuration,
    )


def _load_pod(configuration: Configuration, service_account: Path) -> None:
    try:
        load_incluster_config(  # type: ignore[no-untyped-call]
            configuration,
            token_filename=str(service_account / "token"),
            cert_filename=str(service_account / "ca.crt"),
        )
    except ConfigException as cause:
        raise ClusterError(
            f"not inside a cluster ({str(cause).rstrip('.')}): give a kubeconfig, or run as a service account"
        ) from cause


async def _load_file(configuration: Configuration, kubeconfig: Path) -> None:
    if not await asyncio.to_thread(kubeconfig.is_file):
        raise ClusterError(f"kubeconfig {kubeconfig} does not exist or is not a file")
    # persist_config would write renewed tokens into the user's file.
    context = context_of(kubeconfig) or None
    await load_kube_config(str(kubeconfig), context=context, client_configuration=configuration, persist_config=False)


def _impersonation(kubeconfig: Path) -> Headers:
    """Return the impersonation headers of a kubeconfig. kubernetes_asyncio ignores them, and so has more rights."""
    document = yaml.safe_load(kubeconfig.read_text())
    context = _named(document["contexts"], context_of(kubeconfig) or document["current-context"])["context"]
    user = _named(document.get("users") or [], context.get("user")).get("user") or {}
    extra = user.get("as-user-extra") or {}
    wanted = [
        ("Impersonate-User", user.get("as")),
        ("Impersonate-Uid", user.get("as-uid")),
        *(("Impersonate-Group", group) for group in user.get("as-groups") or []),
        *((f"Impersonate-Extra-{quote(key, safe='')}", value) for key, values in extra.items() for value in values),
    ]
    return tuple((header, value) for header, value in wanted if value)


def _named(entries: list[dict[str, Any]], name: str | None) -> dict[str, Any]:
    return next((entry for entry in entries if entry["name"] == name), {})


def _tls(configuration: Configuration) -> ssl.SSLContext | Literal[True]:
    """Return the TLS context. Reads files, and all system CAs (0.1 s) if none is given: not for the event loop."""
    if not str(configuration.host).startswith("https:"):
        return True
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Python 3.13 made this flag a default. Cluster CAs often lack the extensions it requires (EKS's do), and no
    # other Kubernetes client requires them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _proxy_of_environment(server: str) -> str | None:
    """Return the proxy as kubectl does. aiohttp's trust_env would also read ~/.netrc, and then reject our token."""
    url = urlsplit(server)
    return None if proxy_bypass(url.netloc) else getproxies().get(url.scheme)
