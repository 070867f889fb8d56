"""The version of an API server, and whether Fairgate works with it."""

import re
from typing import Final, NamedTuple

import msgspec

OLDEST: Final = (1, 30)
"""The oldest major and minor version that is tested: docs/versions.md."""

_NUMBER: Final = re.compile(r"\d{1,5}")


class ServerVersion(NamedTuple):
    """A version of Kubernetes; `text` is the server's own name of it, such as v1.31.4-eks-7f9249a."""

    major: int
    minor: int
    text: str

    def __str__(self) -> str:
        return f"Kubernetes {self.major}.{self.minor} ({self.text})"


class _Info(msgspec.Struct, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


def parse_version(body: bytes) -> ServerVersion | None:
    """Return the version that an API server answers at /version; None for any other answer.

    Providers append to numbers: GKE's and EKS's minor is `31+`.
    """
    try:
        info = msgspec.json.decode(body, type=_Info)
    except msgspec.DecodeError:
        return None
    major, minor = _NUMBER.match(info.major), _NUMBER.match(info.minor)
    return None if major is None or minor is None else ServerVersion(int(major[0]), int(minor[0]), info.git_version)


def why_too_old(version: ServerVersion) -> str | None:
    """Return why Fairgate does not work with an API server of this version; None if it does."""
    if (version.major, version.minor) >= OLDEST:
        return None
    oldest = ".".join(map(str, OLDEST))
    return (
        f"the API server is {version}; Fairgate needs Kubernetes {oldest} or newer, whose API servers have "
        "ValidatingAdmissionPolicies and match conditions of webhooks: upgrade the cluster first"
    )
