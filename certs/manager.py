"""Manages the certificates of all replicas in one store: creation, renewal, rotation, serving and caBundle updates.

Every replica does all of this. A write succeeds only if the store has not changed since it was read, so that one of
several replicas wins and the others read its result. How long callers have trusted a CA is measured on this process's
own monotonic clock: wall-clock times are never compared between replicas.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from random import uniform as evenly
from typing import Final, Protocol

from cryptography import x509

from certs.authority import CertificateError, CertificateOptions, is_issued_by
from certs.rotation import (
    KEYS,
    Bundle,
    Change,
    Step,
    Trust,
    bundle_files,
    merged,
    new_bundle,
    next_step,
    read_bundle,
    restored,
    trust_of,
)
from certs.serving import Reloaded, ReloadFailed, Serving, utc_now

SETTLE_SECONDS: Final = 300.0
"""How long every webhook must have had a new CA in its caBundle before the CA signs. An API server applies a change
within seconds; one that is disconnected from etcd for longer does not create pods either."""

RESYNC_SECONDS: Final = 30.0
"""Maximum time between two reconciliations. A watch triggers one within milliseconds: this is for a failed watch."""

_STEPS: Final = 8  # a complete rotation has four; each lost race takes one more
_SPREAD_SECONDS: Final = 0.5


class StoreError(Exception):
    """The store or a webhook configuration cannot be read or written now; the text says which and why."""


class Store(Protocol):
    """The storage that replicas share, in production a Secret."""

    name: str

    async def read(self) -> Mapping[str, bytes] | None:
        """Return all files; None if the store does not exist."""

    async def create(self, files: Mapping[str, bytes]) -> bool:
        """Create the store; return False if it already exists."""

    async def replace(self, files: Mapping[str, bytes]) -> bool:
        """Replace all files; return False if the store has changed since the last read."""


@dataclass(frozen=True, slots=True)
class Published:
    """The webhook configurations: registered, missing, changed by this call, and a version of all of them together."""

    registered: tuple[str, ...]
    missing: tuple[str, ...]
    changed: tuple[str, ...]
    version: str


class Callers(Protocol):
    """The webhook configurations, by which API servers know the CAs to trust."""

    async def publish(self, merge: Callable[[bytes], bytes]) -> Published:
        """Replace each caBundle by `merge(caBundle)`."""


@dataclass(frozen=True, slots=True)
class BundleChanged:
    """This process wrote a new bundle to the store."""

    change: Change
    why: str


@dataclass(frozen=True, slots=True)
class CaBundlesPublished:
    """This process changed the caBundle of these webhook configurations."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CaBundlesUnpublished:
    """The CAs may not be in every caBundle. `why` says why."""

    why: str


Outcome = Reloaded | ReloadFailed | BundleChanged | CaBundlesPublished | CaBundlesUnpublished


class CertificateManager:
    """Updates the server's SSLContext from the store. Call `look` once, then start `run` as a task.

    Until the store has been read, the server uses a temporary certificate that no caller trusts: probes succeed,
    reviews do not. Raises ValueError for terms with a host that is not valid in a certificate.
    """

    def __init__(
        self,
        store: Store,
        callers: Callers,
        *,
        terms: CertificateOptions,
        report: Callable[[Outcome], None],
        clock: Callable[[], datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = evenly,
    ) -> None:
        self._store = store
        self._callers = callers
        self._terms = terms
        self._report = report
        self._clock = clock
        self._monotonic = monotonic
        self._uniform = uniform
        self._serving = Serving(new_bundle(terms, clock(), why="temporary").bundle.pair)
        self._bundle: Bundle | None = None
        self._files: Mapping[str, bytes] = {}
        self._written: x509.Certificate | None = None
        self._wakeup = asyncio.Event()
        self._failures = 0
        self._store_problem: str | None = None
        self._publish_problem: str | None = "not checked yet"
        self._published: tuple[object, ...] = ()
        self._published_since = 0.0
        # In a test of the rotation with short lifetimes, the delay must be shorter than the lifetime of a CA.
        self._settle_seconds = min(SETTLE_SECONDS, terms.ca_lifetime.total_seconds() / 20)
        self._resync_seconds = min(RESYNC_SECONDS, terms.leaf_lifetime.total_seconds() / 10)

    @property
    def serving(self) -> Serving:
        """The SSLContext and the pair in use."""
        return self._serving

    @property
    def bundle(self) -> Bundle | None:
        """The bundle as last read; None before the first read."""
        return self._bundle

    def why_unusable(self) -> str | None:
        """Return why the certificate in use is not usable now, or None."""
        if self._bundle is None:
            return f"not read from {self._store.name} yet: {self._store_problem or 'still waiting'}"
        return self._serving.why_unusable(self._clock())

    def why_unpublished(self) -> str | None:
        """Return why the CAs may not be in every caBundle, or None."""
        return self._publish_problem

    def ring(self) -> None:
        """Trigger a reconciliation: the store or a configuration may have changed."""
        self._wakeup.set()

    async def run(self) -> None:
        """Reconcile forever: after each trigger, at the latest after RESYNC_SECONDS; errors are retried."""
        while True:
            await self._wait()
            await self.look()

    async def look(self) -> None:
        """Apply all steps that are possible now, and report them."""
        problem = None
        try:
            await self._reconcile()
        except StoreError as exc:
            problem = str(exc)
        except CertificateError as exc:
            problem = f"certificates in {self._store.name}: {exc}"
        self._failures = self._failures + 1 if problem else 0
        if problem != self._store_problem:
            self._store_problem = problem
            if problem is not None:
                self._report(ReloadFailed(problem))

    async def _reconcile(self) -> None:
        for _ in range(_STEPS):
            now = self._clock()
            files = await self._store.read()
            bundle = self._parsed(files or {})
            if bundle is None:
                await self._write(self._first_step(now), files)
                continue
            if self._bundle is None:
                self._serve(bundle)  # any certificate is better than the temporary one
            self._bundle = bundle
            trust = trust_of(bundle, now)
            is_published = await self._publish(trust)
            is_settled = is_published and self._monotonic() - self._published_since >= self._settle_seconds
            if is_settled or self._may_serve(bundle, now):
                self._serve(bundle)
            withdrawn = is_published and bool(trust.withdrawn)
            step = next_step(bundle, self._terms, now, is_settled=is_settled, is_withdrawn=withdrawn)
            if step is None:
                return
            await self._write(step, files)
        self.ring()

    def _parsed(self, files: Mapping[str, bytes]) -> Bundle | None:
        """Return the bundle; an unchanged one is not verified again, which takes a millisecond."""
        if self._bundle is not None and files == self._files:
            return self._bundle
        bundle = read_bundle(files)
        if bundle is not None:
            self._files = files
        return bundle

    def _first_step(self, now: datetime) -> Step:
        if self._bundle is not None:
            return restored(self._bundle, self._terms, now)
        return new_bundle(self._terms, now, why=f"{self._store.name} had none")

    async def _write(self, step: Step, files: Mapping[str, bytes] | None) -> None:
        """Write a step to the store, unless another replica wrote first."""
        foreign = {name: content for name, content in (files or {}).items() if name not in KEYS}
        whole = foreign | bundle_files(step.bundle)
        if await (self._store.create(whole) if files is None else self._store.replace(whole)):
            self._written = step.bundle.leaf
            self._report(BundleChanged(step.change, step.why))

    def _may_serve(self, bundle: Bundle, now: datetime) -> bool:
        """Whether all callers that accept the certificate in use also accept the bundle's.

        If not, another program wrote the bundle, and it is served only after callers had time to trust its CA.
        """
        served = self._serving.pair.certificate
        return is_issued_by(served, bundle.signing.certificate) or self._serving.why_unusable(now) is not None

    def _serve(self, bundle: Bundle) -> None:
        if self._serving.load(bundle.pair):
            is_ours = bundle.leaf == self._written
            self._report(Reloaded(not_after=self._serving.not_after, is_renewed=is_ours))

    async def _publish(self, trust: Trust) -> bool:
        """Update every caBundle; return whether callers trust the wanted CAs, and record since when."""
        problem = None
        try:
            published = await self._callers.publish(lambda pem: merged(pem, trust))
        except StoreError as exc:
            problem, published = str(exc), Published((), (), (), "")
        if published.changed:
            self._report(CaBundlesPublished(published.changed))
        if published.missing:
            problem = f"there is no {' and no '.join(published.missing)}: apply the output of `fairgate manifests`"
        is_published = problem is None or bool(published.registered)
        state = (frozenset(trust.wanted), published.version) if is_published else ()
        if state != self._published:
            self._published, self._published_since = state, self._monotonic()
        if problem != self._publish_problem:
            self._publish_problem = problem
            if problem is not None:
                self._report(CaBundlesUnpublished(problem))
        return is_published

    async def _wait(self) -> None:
        longest = min(self._resync_seconds, 2.0**self._failures) if self._failures else self._resync_seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(self._uniform(longest / 2, longest)):
                await self._wakeup.wait()
        # One change triggers all replicas at once: with a random delay one does the work and the others find it done.
        await asyncio.sleep(self._uniform(0, _SPREAD_SECONDS))
        self._wakeup.clear()
