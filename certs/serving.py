"""Certificates in files and in TLS.

Certificates in a folder: ca.crt, tls.crt, tls.key, and ca.key if Fairgate issued them itself.

In a folder with ca.key, missing files are created and certificates are renewed. Without ca.key the files belong to
another program (such as a cert-manager mount) and are only read. No other module of this package uses the disk.
"""

import asyncio
import fcntl
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from certs.authority import (
    CA,
    CA_KEY,
    CERTIFICATE,
    DEFAULT_TERMS,
    KEY,
    Authority,
    CertificateError,
    CertificateOptions,
    Pair,
    certificate_to_pem,
    is_issued_by,
    key_to_pem,
    make_ca,
    make_leaf,
    names_of,
    new_key,
    read_authority,
    read_certificates,
    read_ec_key,
    read_pair,
    renewal_due,
    why_unusable,
)

_READ: Final = (CA, CERTIFICATE, KEY)


class NotWritableError(CertificateError):
    """The folder needs a new file and is not writable."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of a folder by name."""

    files: Mapping[str, bytes]

    @property
    def is_complete(self) -> bool:
        """Whether all files that a server reads are present."""
        return all(name in self.files for name in _READ)


def files_due(contents: Contents, *, terms: CertificateOptions, now: datetime) -> dict[str, bytes]:
    """Return the files that are missing or due for renewal, in the order in which they must be written.

    The order matters: after a crash between two files the next start can complete the folder. A renewal keeps the key
    and replaces only tls.crt, so that no reader sees a certificate with another key; a new key would not be safer,
    since ca.key is in the same folder.
    Raises CertificateError for a folder that cannot be completed.
    """
    have = contents.files
    if CA_KEY not in have:
        if not any(name in have for name in _READ):
            return _everything(terms, now)
        missing = [name for name in _READ if name not in have]
        if missing:
            raise CertificateError(
                f"has {', '.join(name for name in _READ if name in have)} but no {' and no '.join(missing)}: "
                "provide all three files, or none to have them created"
            )
        return {}
    due: dict[str, bytes] = {}
    if CA in have:
        authority = read_authority(have[CA], have[CA_KEY])
        if why := why_unusable(authority.certificate, now, name=CA):
            raise CertificateError(f"{why}: remove all files to have a new CA created, and give clients the new ca.crt")
    else:
        authority = make_ca(read_ec_key(have[CA_KEY], name=CA_KEY), now=now, lifetime=terms.ca_lifetime)
        due[CA] = certificate_to_pem(authority.certificate)
    return due | _leaf_due(have, authority, terms=terms, now=now)


def _everything(terms: CertificateOptions, now: datetime) -> dict[str, bytes]:
    authority, key = make_ca(new_key(), now=now, lifetime=terms.ca_lifetime), new_key()
    return {
        CA_KEY: key_to_pem(authority.key),
        CA: certificate_to_pem(authority.certificate),
        KEY: key_to_pem(key),
        CERTIFICATE: _issue(authority, key, terms, now),
    }


def _leaf_due(
    have: Mapping[str, bytes], authority: Authority, *, terms: CertificateOptions, now: datetime
) -> dict[str, bytes]:
    old_names: tuple[str, ...] = ()
    if KEY not in have:
        key = new_key()
        return {KEY: key_to_pem(key), CERTIFICATE: _issue(authority, key, terms, now)}
    if CERTIFICATE in have:
        old = read_pair(have[CERTIFICATE], have[KEY]).certificate
        if not is_issued_by(old, authority.certificate):
            raise CertificateError(
                "tls.crt was not issued by ca.crt: remove tls.crt and tls.key to have them created again, "
                "or remove ca.key to use the files unchanged"
            )
        if renewal_due(old, now, hosts=terms.names, ca=authority.certificate, lifetime=terms.leaf_lifetime) is None:
            return {}
        # Names are only added: two servers that share a folder must not alternately remove each other's names.
        old_names = names_of(old)
    return {CERTIFICATE: _issue(authority, read_ec_key(have[KEY], name=KEY), terms, now, old_names)}


def _issue(
    authority: Authority,
    key: EllipticCurvePrivateKey,
    terms: CertificateOptions,
    now: datetime,
    old_names: tuple[str, ...] = (),
) -> bytes:
    hosts = (*terms.names, *old_names)
    return certificate_to_pem(
        make_leaf(authority, key=key.public_key(), hosts=hosts, now=now, lifetime=terms.leaf_lifetime)
    )


class CertFolder:
    """A folder of certificates on disk. `terms` say what to issue in a folder with ca.key.

    Methods raise CertificateError, with the folder's name, if its files cannot be used.
    """

    def __init__(self, path: Path, *, terms: CertificateOptions = DEFAULT_TERMS) -> None:
        self.path = path
        self._terms = terms

    def prepare(self, now: datetime) -> Pair:
        """Complete and renew the files in a folder with ca.key, then return a usable pair."""
        with self._named():
            try:
                self._write_due(now)
            except NotWritableError:
                if not self._contents().is_complete:
                    raise
        return self.read(now)

    def renew(self, now: datetime) -> bool:
        """Renew what is due in a folder with ca.key; return whether a file was written."""
        with self._named():
            return self._write_due(now)

    def read(self, now: datetime) -> Pair:
        """Return the current pair. Raises CertificateError if it is not usable."""
        with self._named():
            files = self._contents().files
            missing = [name for name in _READ if name not in files]
            if missing:
                raise CertificateError(f"has no {' and no '.join(missing)}")
            pair = read_pair(files[CERTIFICATE], files[KEY])
            ca_problems = [why_unusable(ca, now, name=CA) for ca in read_certificates(files[CA], name=CA)]
            for why in (
                why_unusable(pair.certificate, now, name=CERTIFICATE),
                ca_problems[0] if all(ca_problems) else None,
            ):
                if why:
                    raise CertificateError(why)
            return pair

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add the folder's path to every error."""
        try:
            yield
        except CertificateError as exc:
            raise type(exc)(f"certificates in {self.path}: {exc}") from exc
        except ValueError as exc:
            raise CertificateError(f"certificates in {self.path}: {exc}") from exc

    def _write_due(self, now: datetime) -> bool:
        if not files_due(self._contents(), terms=self._terms, now=now):
            return False
        with self._locked():
            # Another process may have written them while this one waited for the lock.
            due = files_due(self._contents(), terms=self._terms, now=now)
            for name, content in due.items():
                self._write(name, content)
        return bool(due)

    def _contents(self) -> Contents:
        files = {}
        # Read in reverse order of writing: if one of our files is seen, the ca.key written before it is seen too.
        for name in (CERTIFICATE, KEY, CA, CA_KEY):
            try:
                files[name] = (self.path / name).read_bytes()
            except FileNotFoundError:
                continue
            except OSError as exc:
                raise CertificateError(f"cannot read {name}: {exc.strerror}") from exc
        return Contents(files)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise _not_writable(exc) from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, name: str, content: bytes) -> None:
        """Replace a file atomically; keys are readable by the owner only."""
        try:
            handle, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{name}.")
        except OSError as exc:
            raise _not_writable(exc) from exc
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, 0o600 if name.endswith(".key") else 0o644)
                file.write(content)
                file.flush()
                os.fsync(handle)
            Path(temporary).replace(self.path / name)
        except OSError as exc:
            Path(temporary).unlink(missing_ok=True)
            raise _not_writable(exc) from exc


def _not_writable(exc: OSError) -> NotWritableError:
    return NotWritableError(
        f"cannot write to it ({exc.strerror}): make the folder writable, or mount ca.crt, tls.crt and tls.key in it"
    )


# An SSLContext whose certificate is replaced while it is in use.
#
# New handshakes use the new certificate; open connections stay open.


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The server now uses another certificate; `is_renewed`: this process issued it."""

    not_after: datetime
    is_renewed: bool


@dataclass(frozen=True, slots=True)
class ReloadFailed:
    """The stored certificate is unusable or cannot be renewed: the one in use is kept. `why` says why."""

    why: str


Outcome = Reloaded | ReloadFailed


def utc_now() -> datetime:
    """Return the system time in UTC."""
    return datetime.now(UTC)


class Serving:
    """A server's SSLContext (TLS 1.2 and newer) and its pair, which only `load` changes."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        # client-go resumes no session (its tls.Config has no cache), and two tickets cost a fifth of a handshake
        self.context.num_tickets = 0
        _load(self.context, pair.pem)

    @property
    def not_after(self) -> datetime:
        """When the certificate in use expires."""
        return self.pair.certificate.not_valid_after_utc

    def why_unusable(self, now: datetime) -> str | None:
        """Return why the certificate in use is not usable now, or None."""
        return why_unusable(self.pair.certificate, now, name="the serving certificate")

    def load(self, pair: Pair) -> bool:
        """Use this pair from now on; return whether it differs from the current one."""
        if pair.pem == self.pair.pem:
            return False
        _load(self.context, pair.pem)
        self.pair = pair
        return True


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load exactly these bytes.

    The ssl module only reads files. Reading the folder's files again could find a half-replaced pair, which would leave
    the context with a certificate and no key; so it reads a memory file.
    """
    if sys.platform == "linux":
        memory = os.memfd_create("fairgate-tls", os.MFD_CLOEXEC)
        try:
            with os.fdopen(memory, "wb", closefd=False) as file:
                file.write(pem)
            context.load_cert_chain(f"/proc/self/fd/{memory}")
        finally:
            os.close(memory)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)


# Reloads the server's certificate from a folder. An unusable pair never replaces a usable one.


class Reloader:
    """Updates the server's SSLContext (TLS 1.2 and newer) from the folder.

    The constructor prepares the folder and raises CertificateError if it has no usable pair.
    """

    def __init__(self, folder: CertFolder, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._folder = folder
        self._clock = clock
        self._problem: str | None = None
        self._serving = Serving(folder.prepare(clock()))

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the server."""
        return self._serving.context

    @property
    def not_after(self) -> datetime:
        """When the certificate in use expires."""
        return self._serving.not_after

    @property
    def pair(self) -> Pair:
        """The certificate in use."""
        return self._serving.pair

    def why_unusable(self) -> str | None:
        """Return why the certificate in use is not usable now, or None."""
        return self._serving.why_unusable(self._clock())

    async def check(self) -> Outcome | None:
        """Renew if due, load a changed pair, and return what happened; None: nothing, or the same problem as before."""
        outcome = await asyncio.to_thread(self._renew_and_read)
        match outcome:
            case _Found(pair=pair, is_renewed=is_renewed, problem=problem):
                # Here, not in the thread: OpenSSL does not lock a context against handshakes that start meanwhile.
                if self._serving.load(pair):
                    self._problem = None
                    return Reloaded(not_after=self.not_after, is_renewed=is_renewed)
                return self._if_new(problem)
            case ReloadFailed(why=why):
                return self._if_new(why)

    async def run(self, *, report: Callable[[Outcome], None], every_seconds: float = 5.0) -> None:
        """Check forever; an unexpected exception ends the task, a problem with the files does not."""
        while True:
            await asyncio.sleep(every_seconds)
            outcome = await self.check()
            if outcome is not None:
                report(outcome)

    def _if_new(self, why: str | None) -> ReloadFailed | None:
        is_new, self._problem = why != self._problem, why
        return ReloadFailed(why) if why is not None and is_new else None

    def _renew_and_read(self) -> "_Found | ReloadFailed":
        now = self._clock()
        is_renewed, problem = False, None
        try:
            is_renewed = self._folder.renew(now)
        except CertificateError as exc:
            problem = str(exc)  # the pair may still be usable
        try:
            return _Found(self._read(now), is_renewed=is_renewed, problem=problem)
        except CertificateError as exc:
            return ReloadFailed(str(exc))

    def _read(self, now: datetime) -> Pair:
        try:
            return self._folder.read(now)
        except CertificateError:
            # The two files may have been replaced between the two reads: read again before reporting an error.
            return self._folder.read(now)


@dataclass(frozen=True, slots=True)
class _Found:
    pair: Pair
    is_renewed: bool
    problem: str | None
