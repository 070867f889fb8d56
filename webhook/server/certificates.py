"""Wires the certificates that a server serves with: from a folder or from a Secret, and whom it asks for one."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never

from aiohttp import web

from certs.folder import CertFolder
from certs.manager import BundleChanged, CaBundlesPublished, CaBundlesUnpublished, CertificateManager, Outcome
from certs.pair import CertificateError
from certs.reload import Reloader
from certs.serving import Reloaded, ReloadFailed
from webhook.cluster.api.client import connect
from webhook.cluster.api.errors import ClusterError
from webhook.cluster.api.namespace import own_namespace
from webhook.cluster.writes.certificate_store import SecretStore, WebhookCallers, ring_on_changes
from webhook.observe.logs import Logs
from webhook.observe.metrics import Authorities, Metrics
from webhook.server.http.client_auth import ask_for_certificates, check_caller
from webhook.server.http.probes import Readiness
from webhook.server.settings import CertSecret, LiveCluster, Settings, StartupError

FIRST_LOOK_SECONDS: Final = 5.0
"""How long to wait for the Secret before listening: probes should find somebody who says what is missing."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """What to serve with, and who may send reviews (None: everybody). `keep` keeps it fresh for ever.

    `shown` writes the certificate in use with its intermediates as PEM.
    """

    context: ssl.SSLContext
    keep: Callable[[], Coroutine[Any, Any, None]]
    shown: Callable[[], str]
    check_caller: Callable[[web.BaseRequest], None] | None = None


@dataclass(frozen=True, slots=True)
class Watchers:
    """Who wants to know how it goes with the certificates."""

    readiness: Readiness
    metrics: Metrics
    logs: Logs


async def open_certificates(settings: Settings, stack: AsyncExitStack, watchers: Watchers) -> Certificates:
    """Make certificates ready to serve, as far as they can be had now. Raises StartupError."""
    try:
        match settings.certs:
            case Path() as folder:
                opened = _from_folder(folder, settings, watchers)
            case CertSecret() as secret:
                opened = await _from_secret(secret, settings, stack, watchers)
            case _ as never:
                assert_never(never)
    except (CertificateError, ClusterError) as exc:
        raise StartupError(str(exc)) from exc
    if settings.client_ca is None:
        return opened
    ask_for_certificates(opened.context, settings.client_ca)
    return Certificates(opened.context, opened.keep, opened.shown, check_caller)


def _from_folder(folder: Path, settings: Settings, watchers: Watchers) -> Certificates:
    reloader = Reloader(CertFolder(folder, terms=settings.certificate_terms))
    watchers.readiness.watch("certificate", reloader.why_unusable)
    watchers.metrics.watch_certificate(lambda: reloader.not_after.timestamp())  # noqa: PLW0108 - not_after changes
    return Certificates(
        reloader.context,
        lambda: reloader.run(report=lambda outcome: report(outcome, watchers)),
        lambda: reloader.pair.shown,
    )


async def _from_secret(
    secret: CertSecret, settings: Settings, stack: AsyncExitStack, watchers: Watchers
) -> Certificates:
    if not isinstance(settings.world, LiveCluster):
        raise StartupError("a Secret for the certificates is in a cluster, and none is contacted with a world file")
    kubeconfig = settings.world.kubeconfig
    namespace = settings.namespace
    if namespace is None:
        namespace = await own_namespace(kubeconfig)
    connection = await stack.enter_async_context(await connect(kubeconfig))
    store = SecretStore(connection, namespace=namespace, name=secret.name)
    try:
        keeper = CertificateManager(
            store,
            WebhookCallers(connection),
            terms=settings.certificate_terms,
            report=lambda outcome: report(outcome, watchers),
        )
    except ValueError as exc:
        raise StartupError(str(exc)) from exc
    watchers.readiness.watch("certificate", keeper.why_unusable, remark=keeper.why_unpublished)
    watchers.metrics.watch_certificate(lambda: keeper.serving.not_after.timestamp())  # noqa: PLW0108 - likewise
    watchers.metrics.watch_authorities(lambda: _authorities(keeper))
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_LOOK_SECONDS):
            await keeper.look()

    async def keep() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(keeper.run())
            group.create_task(ring_on_changes(store, connection, keeper.ring))

    return Certificates(keeper.serving.context, keep, lambda: keeper.serving.pair.shown)


def _authorities(keeper: CertificateManager) -> Authorities:
    if keeper.bundle is None:
        return Authorities(expires_at=0.0, trusted=0, is_published=False)
    return Authorities(
        expires_at=keeper.bundle.signing.certificate.not_valid_after_utc.timestamp(),
        trusted=len(keeper.bundle.cas),
        is_published=keeper.why_unpublished() is None,
    )


def report(outcome: Outcome, watchers: Watchers) -> None:
    """Log what happened to the certificates, and count what this process did."""
    event = watchers.logs.event
    match outcome:
        case Reloaded():
            event.info("certificate loaded", expires=outcome.not_after.isoformat(), renewed_by_us=outcome.is_renewed)
        case ReloadFailed():
            event.error("certificate kept", why=outcome.why)
        case BundleChanged():
            watchers.metrics.certificate_change(outcome.change)
            event.info("certificates changed", change=outcome.change, why=outcome.why)
        case CaBundlesPublished():
            event.info("ca bundle published", configurations=list(outcome.names))
        case CaBundlesUnpublished():
            event.warning("ca bundle not published", why=outcome.why)
        case _ as never:
            assert_never(never)
