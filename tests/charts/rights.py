"""Rights: what roles grant, and what an API server's audit log says was asked for."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Json = dict[str, Any]

CREDENTIAL = "authentication.kubernetes.io/credential-id"
DECISION = "authorization.k8s.io/decision"


class Right(NamedTuple):
    """One verb on one resource; `name` is empty where every object is meant, or none is named."""

    verb: str
    group: str
    resource: str
    name: str = ""

    def covers(self, asked: Right) -> bool:
        """Tell whether whoever has this right may do what is asked."""
        return self._replace(name="") == asked._replace(name="") and self.name in ("", asked.name)


def granted(role: Json) -> Iterator[Right]:
    """Every single right of a Role or ClusterRole."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(verb, group, resource, name)


def asked(events: Iterable[Json], *, token: str) -> set[Right]:
    """What was asked for with a token."""
    return {_right(event) for event in _by(events, token) if "objectRef" in event}


def forbidden(events: Iterable[Json], *, token: str) -> list[str]:
    """What was asked for with a token and not allowed."""
    refused = (event for event in _by(events, token) if event["annotations"].get(DECISION) == "forbid")
    return sorted(f"{event['verb']} {event['requestURI']}" for event in refused)


def _by(events: Iterable[Json], token: str) -> Iterator[Json]:
    claims = token.split(".")[1]
    credential = f"JTI={json.loads(base64.urlsafe_b64decode(claims + '=' * (-len(claims) % 4)))['jti']}"
    return (event for event in events if credential in event["user"].get("extra", {}).get(CREDENTIAL, ()))


def _right(event: Json) -> Right:
    target = event["objectRef"]
    resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
    return Right(event["verb"], target.get("apiGroup", ""), resource, target.get("name", ""))
