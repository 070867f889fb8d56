"""Plays kube-apiserver: takes a pod through /mutate, applies the patch, and through /validate."""

import base64
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

import jsonpatch

from tests.blackbox.objects import Json, encode, review
from tests.blackbox.server import Reply, Server

_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Created:
    """What came of a creation: the final pod where it was allowed, and the response that decided."""

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
        return json.loads(self.manifest["metadata"]["annotations"]["fairgate.dev/decision"])


@dataclass
class Api:
    """One user of the API server; keeps the pods that exist, so that they can be deleted again."""

    server: Server
    pods: dict[str, Json] = field(default_factory=dict)

    def create(self, manifest: Json, **how: Any) -> Created:
        """Create a pod, as kube-apiserver does it."""
        advice = self.mutate(manifest, **how)
        if not advice.is_allowed:
            return advice
        return self.validate(advice.manifest, warnings=advice.warnings, **how)

    def mutate(self, manifest: Json, **how: Any) -> Created:
        """Ask the mutating webhook, and apply its patch."""
        uid = f"mutate-{next(_NUMBERS)}"
        response = response_of(self.server.post("/mutate?timeout=10s", encode(review(manifest, uid=uid, **how))), uid)
        return Created(patched(manifest, response), response, tuple(response.get("warnings", ())))

    def validate(self, manifest: Json, *, warnings: tuple[str, ...] = (), **how: Any) -> Created:
        """Ask the validating webhook about the final pod, which has a UID by now."""
        number = next(_NUMBERS)
        final = manifest | {"metadata": {"uid": f"uid-{number}"} | manifest["metadata"]}
        uid = f"validate-{number}"
        response = response_of(self.server.post("/validate?timeout=10s", encode(review(final, uid=uid, **how))), uid)
        assert "patch" not in response
        if response["allowed"] and not how.get("dry_run"):
            self.pods[final["metadata"]["uid"]] = final
        return Created(final, response, warnings + tuple(response.get("warnings", ())))

    def update(self, old: Json, new: Json, **how: Any) -> Created:
        """Ask about an update."""
        uid = f"update-{next(_NUMBERS)}"
        asked = review(new, uid=uid, operation="UPDATE", old=old, **how)
        return Created(new, response_of(self.server.post("/validate", encode(asked)), uid))

    def delete(self, manifest: Json, **how: Any) -> Created:
        """Tell that a pod is deleted."""
        uid = f"delete-{next(_NUMBERS)}"
        asked = review(None, uid=uid, operation="DELETE", old=manifest, **how)
        response = response_of(self.server.post("/validate", encode(asked)), uid)
        if not how.get("dry_run"):
            self.pods.pop(manifest["metadata"]["uid"], None)
        return Created(manifest, response)

    def delete_all(self) -> None:
        for manifest in list(self.pods.values()):
            assert self.delete(manifest).is_allowed


def response_of(reply: Reply, uid: str) -> Json:
    """Hold an answer to the API's form, and give its response."""
    assert reply.status == 200, reply
    told = reply.json
    assert (told["apiVersion"], told["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Json = told["response"]
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
    """Apply the patch of a response; the given pod stays as it is."""
    if "patch" not in response:
        return manifest
    operations = json.loads(base64.b64decode(response["patch"], validate=True))
    assert operations, "a patch that changes nothing is left out"
    result: Json = jsonpatch.apply_patch(manifest, operations)
    return result
