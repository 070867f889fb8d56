"""Keeps certificates in a folder: ca.crt, tls.crt, tls.key, and ca.key where Fairgate issued them itself.

A folder with ca.key is ours: what is missing is made, what grows old is renewed. Without ca.key the files belong to
somebody else (a cert-manager mount, say) and are only read. Nothing else in this package touches a disk.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from certs.authority import (
    DEFAULT_TERMS,
    Authority,
    CertificateOptions,
    make_ca,
    make_leaf,
    names_of,
    new_key,
    renewal_due,
)
from certs.pair import (
    CA,
    CA_KEY,
    CERTIFICATE,
    KEY,
    CertificateError,
    Pair,
    certificate_to_pem,
    is_issued_by,
    key_to_pem,
    read_authority,
    read_certificates,
    read_ec_key,
    read_pair,
    why_unusable,
)

_READ: Final = (CA, CERTIFICATE, KEY)


class NotWritableError(CertificateError):
    """The folder needs a new file and does not take it."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What lies in a folder, by file name."""

    files: Mapping[str, bytes]

    @property
    def is_complete(self) -> bool:
        """Tell whether all that a server reads is there."""
        return all(name in self.files for name in _READ)


def files_due(contents: Contents, *, terms: CertificateOptions, now: datetime) -> dict[str, bytes]:
    """Make the files that a folder lacks or that are due for renewal, in the order in which they must be written.

    The order matters: a crash after any one of them leaves a folder that the next start completes. A renewal keeps
    the key and replaces tls.crt alone, so that no reader ever sees a certificate with another's key; a fresh key would
    gain nothing, as ca.key lies beside it.
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
                "provide all three files, or none to have them made"
            )
        return {}
    due: dict[str, bytes] = {}
    if CA in have:
        authority = read_authority(have[CA], have[CA_KEY])
        if why := why_unusable(authority.certificate, now, name=CA):
            raise CertificateError(f"{why}: remove all files to have a new CA made, and give clients the new ca.crt")
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
                "tls.crt was not issued by ca.crt: remove tls.crt and tls.key to have them made anew, "
                "or remove ca.key to have the files used as they are"
            )
        if renewal_due(old, now, hosts=terms.names, ca=authority.certificate) is None:
            return {}
        # Names only grow: two servers on one folder must not take turns in removing each other's.
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
    """A folder of certificates on disk. `terms` say what is issued if the folder is ours.

    Raises CertificateError, with the folder's name, wherever its files cannot be used.
    """

    def __init__(self, path: Path, *, terms: CertificateOptions = DEFAULT_TERMS) -> None:
        self.path = path
        self._terms = terms

    def prepare(self, now: datetime) -> Pair:
        """Complete and renew the files if they are ours, then read a pair that can serve."""
        with self._named():
            try:
                self._write_due(now)
            except NotWritableError:
                if not self._contents().is_complete:
                    raise
        return self.read(now)

    def renew(self, now: datetime) -> bool:
        """Renew what is due in a folder of ours; tell whether anything was written."""
        with self._named():
            return self._write_due(now)

    def read(self, now: datetime) -> Pair:
        """Read the pair as it is now; raise CertificateError if it cannot serve."""
        with self._named():
            files = self._contents().files
            missing = [name for name in _READ if name not in files]
            if missing:
                raise CertificateError(f"has no {' and no '.join(missing)}")
            pair = read_pair(files[CERTIFICATE], files[KEY])
            troubles = [why_unusable(ca, now, name=CA) for ca in read_certificates(files[CA], name=CA)]
            for why in (
                why_unusable(pair.certificate, now, name=CERTIFICATE),
                troubles[0] if all(troubles) else None,
            ):
                if why:
                    raise CertificateError(why)
            return pair

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Say in every error which folder it is about."""
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
            # Another process may have written them while we waited for the lock.
            due = files_due(self._contents(), terms=self._terms, now=now)
            for name, content in due.items():
                self._write(name, content)
        return bool(due)

    def _contents(self) -> Contents:
        files = {}
        # Against the order of writing: whoever sees a file of ours also sees the ca.key that was written before it.
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
        """Put a file in place at once, whole; keys readable by their owner only."""
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
        f"cannot write there ({exc.strerror}): make the folder writable, or mount ca.crt, tls.crt and tls.key in it"
    )
