"""Errors of the API client; their texts say what an operator can check."""

from http import HTTPStatus

from webhook.input_error import InputError


class ClusterError(InputError):
    """The cluster could not be reached, or its response was unusable: the text says what to check."""


class ApiError(ClusterError):
    """The API server responded with an error status.

    `retry_after_seconds` is the response's Retry-After, 0 if it has none.
    """

    def __init__(self, text: str, *, status: int, retry_after_seconds: float = 0.0) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_forbidden(self) -> bool:
        """Whether RBAC forbids it: a retry would fail, too."""
        return self.status == HTTPStatus.FORBIDDEN

    @property
    def is_refusal(self) -> bool:
        """Whether it is an answer to the request, which a retry will get, too: no overload and no failure inside."""
        return self.status < HTTPStatus.INTERNAL_SERVER_ERROR and self.status != HTTPStatus.TOO_MANY_REQUESTS

    @property
    def is_gone(self) -> bool:
        """Whether the resourceVersion or continue token is too old: list again."""
        return self.status == HTTPStatus.GONE

    @property
    def is_invalid(self) -> bool:
        """Whether the server rejects the request as malformed: an option that it does not know."""
        return self.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}

    @property
    def is_missing(self) -> bool:
        """Whether the server has no such API or object."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def is_conflict(self) -> bool:
        """Whether a precondition failed: another resourceVersion or UID than requested, or the name is taken."""
        return self.status == HTTPStatus.CONFLICT


class LostTrackError(ClusterError):
    """The watch cannot continue from its resourceVersion because bytes or events are lost: list again."""


class RestoredError(ClusterError):
    """An object or a list has an earlier resourceVersion than was seen: etcd was restored from a backup.

    What was seen since then did not happen for the cluster, so nothing that this process knows is certain.
    """

    def __init__(self, what: str, *, found: int, known: int) -> None:
        super().__init__(
            f"{what} at resourceVersion {found}, and {known} was seen before: etcd was restored from a backup"
        )
