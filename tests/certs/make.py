"""A store and webhook configurations in memory, and replicas that a test advances step by step."""

from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cryptography import x509

from certs.authority import CertificateOptions, is_issued_by, read_certificates
from certs.manager import CertificateManager, Outcome, Published, StoreError
from certs.rotation import read_bundle

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
TERMS = CertificateOptions(("fairgate.gpu.svc",), ca_lifetime=timedelta(hours=18), leaf_lifetime=timedelta(hours=6))
SETTLE_SECONDS = 300


class Turn:
    """A point where other replicas may run: each response of the API is one."""

    def __await__(self) -> Generator[None, None, None]:
        yield


@dataclass
class Cluster:
    """The shared state: time, the Secret, and the history of the caBundle of two configurations."""

    seconds: float = 0.0
    files: dict[str, bytes] | None = None
    version: int = 0
    bundles: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    history: list[tuple[float, str, bytes]] = field(default_factory=list)
    is_away: bool = False

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def register(self, pem: bytes = b"") -> None:
        for name in ("mutating", "validating"):
            self.set_bundle(name, pem)

    def set_bundle(self, name: str, pem: bytes) -> None:
        self.version += 1
        self.bundles[name], self.versions[name] = pem, self.version
        self.history.append((self.seconds, name, pem))

    def known_to_callers(self, name: str, *, lag_seconds: float) -> list[list[x509.Certificate]]:
        """Every set of CAs that some caller may use now, if none is further behind than this."""
        seen = [(at, pem) for at, where, pem in self.history if where == name]
        last_before = max((i for i, (at, _) in enumerate(seen) if at <= self.seconds - lag_seconds), default=0)
        return [parsed(pem) for _, pem in seen[last_before:]]


class MemoryStore:
    name = "Secret gpu/certs"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._read = 0

    async def read(self):
        await self._answer()
        self._read = self._cluster.version
        return None if self._cluster.files is None else dict(self._cluster.files)

    async def create(self, files):
        await self._answer()
        if self._cluster.files is not None:
            return False
        return self._keep(files)

    async def replace(self, files):
        await self._answer()
        if self._cluster.files is None or self._cluster.version != self._read:
            return False
        return self._keep(files)

    def _keep(self, files):
        self._cluster.files = dict(files)
        self._cluster.version += 1
        return True

    async def _answer(self):
        await Turn()
        if self._cluster.is_away:
            raise StoreError("cannot get secrets: no API server")


class MemoryCallers:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def publish(self, merge):
        changed = []
        for name in list(self._cluster.bundles):
            await Turn()
            if self._cluster.is_away:
                raise StoreError("cannot get webhook configurations: no API server")
            wanted = merge(self._cluster.bundles[name])
            if wanted != self._cluster.bundles[name]:
                self._cluster.set_bundle(name, wanted)
                changed.append(name)
        names = ("mutating", "validating")
        return Published(
            registered=tuple(self._cluster.bundles),
            missing=tuple(name for name in names if name not in self._cluster.bundles),
            changed=tuple(changed),
            version=str(sorted(self._cluster.versions.items())),
        )


class Replica:
    """A certificate manager with a clock that may be wrong, advanced by the test one API response at a time."""

    def __init__(self, cluster: Cluster, *, skew_seconds: float = 0.0, terms: CertificateOptions = TERMS) -> None:
        self.reported: list[Outcome] = []
        self.manager = CertificateManager(
            MemoryStore(cluster),
            MemoryCallers(cluster),
            terms=terms,
            report=self.reported.append,
            clock=lambda: cluster.now + timedelta(seconds=skew_seconds),
            monotonic=lambda: cluster.seconds,
        )
        self._looking = None

    @property
    def leaf(self) -> x509.Certificate | None:
        return self.manager.serving.pair.certificate if self.manager.bundle else None

    def step(self) -> None:
        """Continue until the next response of the API, or the end of the reconciliation."""
        if self._looking is None:
            self._looking = self.manager.look()
        try:
            self._looking.send(None)
        except StopIteration:
            self._looking = None

    def look(self) -> None:
        """Finish a reconciliation in progress, or run a complete one."""
        self.step()
        while self._looking is not None:
            self.step()

    def stop(self) -> None:
        if self._looking is not None:
            self._looking.close()
            self._looking = None


@lru_cache
def parsed(pem: bytes) -> list[x509.Certificate]:
    return read_certificates(pem, name="caBundle") if pem else []


issued_by = lru_cache(is_issued_by)


def is_accepted(leaf: x509.Certificate, cas: list[x509.Certificate], now: datetime) -> bool:
    """Whether a caller with these CAs accepts a certificate, by CA and time."""
    is_in_time = leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc
    return is_in_time and any(
        ca.not_valid_before_utc <= now < ca.not_valid_after_utc and issued_by(leaf, ca) for ca in cas
    )


def bundle_of(cluster: Cluster):
    return read_bundle(cluster.files or {})
