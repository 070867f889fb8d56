"""Plays kube-apiserver: takes a pod through /mutate, applies the patch, and through /validate."""

import base64
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

import jsonpatch

from tests.blackbox.objects import Json, encode, review
from tests.blackbox.server import Reply, Server
from tests.builders import decision_of

_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Created:
    """The result of a creation: the final pod, and the deciding response."""

    manifest: Json
    response: Json
    warnings: tuple[str, ...] = ()

    @property
    def is_allowed(self) -> bool:
        allowed: bool = self.response["allowed"]
        return allowed

    @property
    def status(self) -> Json:
        """The refusal."""
        found: Json = self.response["status"]
        return found

    @property
    def labels(self) -> dict[str, str]:
        return self.manifest["metadata"].get("labels", {})

    @property
    def decision(self) -> Any:
        return decision_of(self.manifest)


@dataclass
class Api:
    """One user of the API server; keeps the pods that exist, so that they can be deleted again."""

    server: Server
    pods: dict[str, Json] = field(default_factory=dict)

    def create(self, manifest: Json, **how: Any) -> Created:
        """Create a pod, as kube-apiserver does it."""
        mutated = self.mutate(manifest, **how)
        if not mutated.is_allowed:
            return mutated
        return self.validate(mutated.manifest, warnings=mutated.warnings, **how)

    def mutate(self, manifest: Json, **how: Any) -> Created:
        """Call the mutating webhook, and apply its patch."""
        uid = f"mutate-{next(_NUMBERS)}"
        response = response_of(self.server.post("/mutate?timeout=10s", encode(review(manifest, uid=uid, **how))), uid)
        return Created(patched(manifest, response), response, tuple(response.get("warnings", ())))

    def validate(self, manifest: Json, *, warnings: tuple[str, ...] = (), **how: Any) -> Created:
        """Call the validating webhook with the final pod, which now has a UID."""
        number = next(_NUMBERS)
        final = manifest | {"metadata": {"uid": f"uid-{number}"} | manifest["metadata"]}
        uid = f"validate-{number}"
        response = response_of(self.server.post("/validate?timeout=10s", encode(review(final, uid=uid, **how))), uid)
        assert "patch" not in response
        if response["allowed"] and not how.get("dry_run"):
            self.pods[final["metadata"]["uid"]] = final
        return Created(final, response, warnings + tuple(response.get("warnings", ())))

    def update(self, old: Json, new: Json, **how: Any) -> Created:
        """Send an update."""
        uid = f"update-{next(_NUMBERS)}"
        request = review(new, uid=uid, operation="UPDATE", old=old, **how)
        return Created(new, response_of(self.server.post("/validate", encode(request)), uid))

    def delete(self, manifest: Json, **how: Any) -> Created:
        """Send a deletion."""
        uid = f"delete-{next(_NUMBERS)}"
        request = review(None, uid=uid, operation="DELETE", old=manifest, **how)
        response = response_of(self.server.post("/validate", encode(request)), uid)
        if not how.get("dry_run"):
            self.pods.pop(manifest["metadata"]["uid"], None)
        return Created(manifest, response)

    def delete_all(self) -> None:
        for manifest in list(self.pods.values()):
            assert self.delete(manifest).is_allowed


def response_of(reply: Reply, uid: str) -> Json:
    """Check that an answer conforms to the API, and return its response."""
    assert reply.status == 200, reply
    answer = reply.json
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Json = answer["response"]
    assert response["uid"] == uid
    assert type(response["allowed"]) is bool
    assert ("patch" in response) == (response.get("patchType") == "JSONPatch")
    if not response["allowed"]:
        assert "patch" not in response
        status = response["status"]
        assert status["code"] in (403, 429)
        assert status["reason"] == {403: "Forbidden", 429: "TooManyRequests"}[status["code"]]
        assert status["message"].strip()
        assert "Traceback" not in status["message"]
    assert len(response.get("warnings", ())) <= 3
    assert all(0 < len(text) <= 120 and "\n" not in text for text in response.get("warnings", ()))
    assert all(isinstance(value, str) for value in response.get("auditAnnotations", {}).values())
    return response


def patched(manifest: Json, response: Json) -> Json:
    """Return the pod with the patch of a response applied."""
    if "patch" not in response:
        return manifest
    operations = json.loads(base64.b64decode(response["patch"], validate=True))
    assert operations, "an empty patch is omitted"
    result: Json = jsonpatch.apply_patch(manifest, operations)
    return result
