"""What goes wrong between us and the API server, in words an operator can act on."""

from http import HTTPStatus


class ClusterError(Exception):
    """The cluster could not be asked, or its answer was no use: the text says what to check."""


class ApiError(ClusterError):
    """The API server answered, and the answer was no.

    `retry_after_seconds` is how long it asked us to stay away, 0 where it did not say.
    """

    def __init__(self, text: str, *, status: int, retry_after_seconds: float = 0.0) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_forbidden(self) -> bool:
        """Tell whether RBAC does not allow it: trying again is no use."""
        return self.status == HTTPStatus.FORBIDDEN

    @property
    def is_gone(self) -> bool:
        """Tell whether the server forgot the resourceVersion or continue token we came with: list again."""
        return self.status == HTTPStatus.GONE

    @property
    def is_invalid(self) -> bool:
        """Tell whether the server does not take the request as it is put: an option that it does not know."""
        return self.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}

    @property
    def is_missing(self) -> bool:
        """Tell whether the server has no such API or object."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def is_conflict(self) -> bool:
        """Tell whether somebody else was faster: another resourceVersion or UID than we named, or the name is taken."""
        return self.status == HTTPStatus.CONFLICT


class LostTrackError(ClusterError):
    """The watch cannot go on from where it was, for bytes or events are lost: list again."""
