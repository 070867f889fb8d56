"""The exception for a request that gets an HTTP error response."""


class HttpError(Exception):
    """A request that gets an HTTP error response; `code` is for programs, `text` for people.

    With `retry_after_seconds` the API server retries by itself, within its own timeout.
    """

    def __init__(self, status: int, code: str, text: str, *, retry_after_seconds: int = 0) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text
        self.retry_after_seconds = retry_after_seconds
