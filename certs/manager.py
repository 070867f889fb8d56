"""Keeps the certificates of all replicas in one store: made once, renewed, rotated, served; callers told whom to trust.

Every replica does all of it. A write counts only if the store is still as it was read, so that of several replicas one
wins and the others read what it wrote. How long callers have known a CA is measured by looking, on this process's own
monotonic clock: no time of day is ever compared between replicas.
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

from certs.authority import CertificateOptions
from certs.bundle import KEYS, Bundle, bundle_files, read_bundle
from certs.pair import CertificateError, is_issued_by
from certs.rotation import Change, Step, Trust, new_bundle, next_step, restored, trust_of
from certs.serving import Reloaded, ReloadFailed, Serving, utc_now
from certs.trust import merged

SETTLE_SECONDS: Final = 300.0
"""How long every webhook must have carried a new CA before it signs. An API server takes a change over within
seconds; one that is cut off for longer than this from etcd does not create pods either."""

LOOK_SECONDS: Final = 30.0
"""Longest time between two looks. Changes ring the bell within milliseconds: this is for a watch that broke."""

_STEPS: Final = 8  # a whole rotation has four; a race lost costs one
_SPREAD_SECONDS: Final = 0.5


class StoreError(Exception):
    """The store or the callers' registrations cannot be read or written now; the text says which and why."""


class Store(Protocol):
    """One Secret, or whatever else replicas share."""

    name: str

    async def read(self) -> Mapping[str, bytes] | None:
        """Read all files; None: there is nothing under that name."""

    async def create(self, files: Mapping[str, bytes]) -> bool:
        """Make it, unless somebody else was faster: False."""

    async def replace(self, files: Mapping[str, bytes]) -> bool:
        """Write all files anew, unless somebody else wrote since the last read: False."""


@dataclass(frozen=True, slots=True)
class Published:
    """Where callers are registered, which of these were changed just now, and the version of all of them together."""

    registered: tuple[str, ...]
    missing: tuple[str, ...]
    changed: tuple[str, ...]
    version: str


class Callers(Protocol):
    """Where callers learn whom to trust: the webhook configurations."""

    async def publish(self, merge: Callable[[bytes], bytes]) -> Published:
        """Let every registered caller trust what `merge` makes of what it trusts now."""


@dataclass(frozen=True, slots=True)
class BundleChanged:
    """This process wrote a new state of the certificates."""

    change: Change
    why: str


@dataclass(frozen=True, slots=True)
class CaBundlesPublished:
    """These registrations were given another set of CAs by this process."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CaBundlesUnpublished:
    """Callers may not know whom to trust. `why` says why."""

    why: str


Outcome = Reloaded | ReloadFailed | BundleChanged | CaBundlesPublished | CaBundlesUnpublished


class CertificateManager:
    """Holds the server's SSLContext and keeps its certificate the store's. `look` once, then start `run` as a task.

    Until the store could be read a certificate that nobody trusts is served: probes get their answers, callers do not.
    Raises ValueError for terms with a host that cannot stand in a certificate.
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
        self._serving = Serving(new_bundle(terms, clock(), why="a stand-in").bundle.pair)
        self._bundle: Bundle | None = None
        self._files: Mapping[str, bytes] = {}
        self._written: x509.Certificate | None = None
        self._bell = asyncio.Event()
        self._failures = 0
        self._trouble: str | None = None  # with the store
        self._untold: str | None = "not looked yet"
        self._seen: tuple[object, ...] = ()
        self._seen_since = 0.0
        # Somebody who rehearses a rotation with short lives must not wait for longer than a CA lives.
        self._settle_seconds = min(SETTLE_SECONDS, terms.ca_lifetime.total_seconds() / 20)
        self._look_seconds = min(LOOK_SECONDS, terms.leaf_lifetime.total_seconds() / 10)

    @property
    def serving(self) -> Serving:
        """What to serve with."""
        return self._serving

    @property
    def bundle(self) -> Bundle | None:
        """The certificates as last read; None before that."""
        return self._bundle

    def why_unusable(self) -> str | None:
        """Say why the certificate in use cannot serve at this moment."""
        if self._bundle is None:
            return f"not had from {self._store.name} yet: {self._trouble or 'still asking'}"
        return self._serving.why_unusable(self._clock())

    def why_unpublished(self) -> str | None:
        """Say why callers may not know whom to trust."""
        return self._untold

    def ring(self) -> None:
        """Say that something may have changed."""
        self._bell.set()

    async def run(self) -> None:
        """Look for ever: soon after the bell, at the latest after a while; trouble is reported and tried again."""
        while True:
            await self._rest()
            await self.look()

    async def look(self) -> None:
        """Do all that can be done now, and report it."""
        trouble = None
        try:
            await self._look()
        except StoreError as exc:
            trouble = str(exc)
        except CertificateError as exc:
            trouble = f"certificates in {self._store.name}: {exc}"
        self._failures = self._failures + 1 if trouble else 0
        if trouble != self._trouble:
            self._trouble = trouble
            if trouble is not None:
                self._report(ReloadFailed(trouble))

    async def _look(self) -> None:
        for _ in range(_STEPS):
            now = self._clock()
            files = await self._store.read()
            bundle = self._parsed(files or {})
            if bundle is None:
                await self._write(self._first_step(now), files)
                continue
            if self._bundle is None:
                self._serve(bundle)  # anything is better than the stand-in
            self._bundle = bundle
            trust = trust_of(bundle, now)
            is_told = await self._tell(trust)
            is_settled = is_told and self._monotonic() - self._seen_since >= self._settle_seconds
            if is_settled or self._may_serve(bundle, now):
                self._serve(bundle)
            withdrawn = is_told and bool(trust.withdrawn)
            step = next_step(bundle, self._terms, now, is_settled=is_settled, is_withdrawn=withdrawn)
            if step is None:
                return
            await self._write(step, files)
        self.ring()

    def _parsed(self, files: Mapping[str, bytes]) -> Bundle | None:
        """Read the bundle; one that did not change is not verified again, which would cost a millisecond each time."""
        if self._bundle is not None and files == self._files:
            return self._bundle
        bundle = read_bundle(files)
        if bundle is not None:
            self._files = files
        return bundle

    def _first_step(self, now: datetime) -> Step:
        if self._bundle is not None:
            return restored(self._bundle, self._terms, now)
        return new_bundle(self._terms, now, why=f"{self._store.name} held none")

    async def _write(self, step: Step, files: Mapping[str, bytes] | None) -> None:
        """Write a step down; where somebody else was faster, his counts."""
        foreign = {name: content for name, content in (files or {}).items() if name not in KEYS}
        whole = foreign | bundle_files(step.bundle)
        if await (self._store.create(whole) if files is None else self._store.replace(whole)):
            self._written = step.bundle.leaf
            self._report(BundleChanged(step.change, step.why))

    def _may_serve(self, bundle: Bundle, now: datetime) -> bool:
        """Tell whether callers who take the certificate in use, if there are any, will take the bundle's.

        If not, it must wait until they have had the time to learn of its CA: somebody put it there who did not.
        """
        served = self._serving.pair.certificate
        return is_issued_by(served, bundle.signing.certificate) or self._serving.why_unusable(now) is not None

    def _serve(self, bundle: Bundle) -> None:
        if self._serving.load(bundle.pair):
            is_ours = bundle.leaf == self._written
            self._report(Reloaded(not_after=self._serving.not_after, is_renewed=is_ours))

    async def _tell(self, trust: Trust) -> bool:
        """Let callers trust what they should; tell whether they all are known to, and note since when."""
        untold = None
        try:
            published = await self._callers.publish(lambda pem: merged(pem, trust))
        except StoreError as exc:
            untold, published = str(exc), Published((), (), (), "")
        if published.changed:
            self._report(CaBundlesPublished(published.changed))
        if published.missing:
            untold = f"there is no {' and no '.join(published.missing)}: apply what `fairgate manifests` prints"
        is_told = untold is None or bool(published.registered)
        seen = (frozenset(trust.wanted), published.version) if is_told else ()
        if seen != self._seen:
            self._seen, self._seen_since = seen, self._monotonic()
        if untold != self._untold:
            self._untold = untold
            if untold is not None:
                self._report(CaBundlesUnpublished(untold))
        return is_told

    async def _rest(self) -> None:
        longest = min(self._look_seconds, 2.0**self._failures) if self._failures else self._look_seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(self._uniform(longest / 2, longest)):
                await self._bell.wait()
        # One change rings the bells of all replicas at once: let one do the work and the others find it done.
        await asyncio.sleep(self._uniform(0, _SPREAD_SECONDS))
        self._bell.clear()
