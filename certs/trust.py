"""Merges CAs into a webhook's caBundle. Pure."""

from certs.pair import CertificateError, certificate_to_pem, read_certificates
from certs.rotation import Trust


def merged(pem: bytes, trust: Trust) -> bytes:
    """Add the CAs that are wanted and remove those that are withdrawn; give the same bytes where nothing differs.

    All others stay, in their order: they are somebody else's, or of an installation that this one takes over from.
    What is no certificates at all, such as the newline that some charts write to have something there, is replaced.
    """
    try:
        present = read_certificates(pem, name="caBundle")
    except CertificateError:
        present = []
    stay = [ca for ca in present if ca not in trust.withdrawn]
    new = [ca for ca in trust.wanted if ca not in present]
    return b"".join(map(certificate_to_pem, [*stay, *new])) if new or len(stay) < len(present) else pem
