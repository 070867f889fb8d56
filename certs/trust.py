"""Merges CAs into a webhook's caBundle. Pure."""

from certs.pair import CertificateError, certificate_to_pem, read_certificates
from certs.rotation import Trust


def merged(pem: bytes, trust: Trust) -> bytes:
    """Return a caBundle with the wanted CAs and without the withdrawn ones; the same bytes if nothing changes.

    All other CAs stay, in their order: they belong to other programs or to a previous installation. Text that is not
    certificates, such as the newline that some charts write as a placeholder, is replaced.
    """
    try:
        present = read_certificates(pem, name="caBundle")
    except CertificateError:
        present = []
    stay = [ca for ca in present if ca not in trust.withdrawn]
    new = [ca for ca in trust.wanted if ca not in present]
    return b"".join(map(certificate_to_pem, [*stay, *new])) if new or len(stay) < len(present) else pem
