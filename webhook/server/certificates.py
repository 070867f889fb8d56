"""Wires a server's certificates, from a folder or from a Secret, and the authentication of its clients."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never

from certs.authority import CertificateError
from certs.manager import BundleChanged, CaBundlesPublished, CaBundlesUnpublished, CertificateManager, Outcome
from certs.serving import CertFolder, Reloaded, Reloader, ReloadFailed
from webhook.cluster.api.client import ClusterError, connect
from webhook.cluster.api.requests import own_namespace
from webhook.cluster.writes.registration import SecretStore, WebhookConfigurations, notify_on_changes
from webhook.observe.logs import Logs
from webhook.observe.metrics import CaStatus, Metrics
from webhook.server.http.handlers import Readiness
from webhook.server.http.replies import check_caller, request_certificates
from webhook.server.settings import CertSecret, LiveCluster, ServerSettings, StartupError

FIRST_READ_SECONDS: Final = 5.0
"""How long to wait for the Secret before listening: then probes can report what is missing."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """The serving certificate, and who may send reviews (None: any client). `renew` keeps it current until cancelled.

    `pem` returns the current certificate with its intermediates as PEM.
    """

    context: ssl.SSLContext
    renew: Callable[[], Coroutine[Any, Any, None]]
    pem: Callable[[], str]
    check_caller: Callable[[asyncio.BaseTransport | None], None] | None = None


@dataclass(frozen=True, slots=True)
class CertificateStatus:
    """Where the state of the certificates is reported."""

    readiness: Readiness
    metrics: Metrics
    logs: Logs


async def open_certificates(settings: ServerSettings, stack: AsyncExitStack, status: CertificateStatus) -> Certificates:
    """Load the certificates, as far as they are available now. Raises StartupError."""
    try:
        match settings.certs:
            case Path() as folder:
                opened = _from_folder(folder, settings, status)
            case CertSecret() as secret:
                opened = await _from_secret(secret, settings, stack, status)
            case _ as never:
                assert_never(never)
    except (CertificateError, ClusterError) as exc:
        raise StartupError(str(exc)) from exc
    if settings.client_ca is None:
        return opened
    request_certificates(opened.context, settings.client_ca)
    return Certificates(opened.context, opened.renew, opened.pem, check_caller)


def _from_folder(folder: Path, settings: ServerSettings, status: CertificateStatus) -> Certificates:
    reloader = Reloader(CertFolder(folder, terms=settings.certificate_terms))
    status.readiness.watch("certificate", reloader.why_unusable)
    status.metrics.watch_certificate(lambda: reloader.not_after.timestamp())  # noqa: PLW0108 - not_after changes
    return Certificates(
        reloader.context,
        lambda: reloader.run(report=lambda outcome: report(outcome, status)),
        lambda: reloader.pair.shown,
    )


async def _from_secret(
    secret: CertSecret, settings: ServerSettings, stack: AsyncExitStack, status: CertificateStatus
) -> Certificates:
    if not isinstance(settings.world, LiveCluster):
        raise StartupError("certificates in a Secret need a cluster, and a world file uses none")
    kubeconfig = settings.world.kubeconfig
    namespace = settings.namespace
    if namespace is None:
        namespace = await own_namespace(kubeconfig)
    connection = await stack.enter_async_context(await connect(kubeconfig))
    store = SecretStore(connection, namespace=namespace, name=secret.name)
    try:
        manager = CertificateManager(
            store,
            WebhookConfigurations(connection),
            terms=settings.certificate_terms,
            report=lambda outcome: report(outcome, status),
        )
    except ValueError as exc:
        raise StartupError(str(exc)) from exc
    status.readiness.watch("certificate", manager.why_unusable, remark=manager.why_unpublished)
    status.metrics.watch_certificate(lambda: manager.serving.not_after.timestamp())  # noqa: PLW0108 - it changes
    status.metrics.watch_cas(lambda: _ca_status(manager))
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_READ_SECONDS):
            await manager.look()

    async def renew() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run())
            group.create_task(notify_on_changes(store, connection, manager.ring))

    return Certificates(manager.serving.context, renew, lambda: manager.serving.pair.shown)


def _ca_status(manager: CertificateManager) -> CaStatus:
    if manager.bundle is None:
        return CaStatus(expires_at=0.0, trusted=0, is_published=False)
    return CaStatus(
        expires_at=manager.bundle.signing.certificate.not_valid_after_utc.timestamp(),
        trusted=len(manager.bundle.cas),
        is_published=manager.why_unpublished() is None,
    )


def report(outcome: Outcome, status: CertificateStatus) -> None:
    """Log a change of the certificates, and count the changes of this process."""
    event = status.logs.event
    match outcome:
        case Reloaded():
            event.info("certificate loaded", expires=outcome.not_after.isoformat(), renewed_by_us=outcome.is_renewed)
        case ReloadFailed():
            event.error("certificate kept", why=outcome.why)
        case BundleChanged():
            status.metrics.certificate_change(outcome.change)
            event.info("certificates changed", change=outcome.change, why=outcome.why)
        case CaBundlesPublished():
            event.info("ca bundle published", configurations=list(outcome.names))
        case CaBundlesUnpublished():
            event.warning("ca bundle not published", why=outcome.why)
        case _ as never:
            assert_never(never)
