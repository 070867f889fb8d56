"""A request that is answered with an HTTP error."""


class RefusedError(Exception):
    """A request that is answered with an HTTP error; `code` names it for programs, `text` for people.

    With `retry_after_seconds` the API server asks again by itself, within its own time.
    """

    def __init__(self, status: int, code: str, text: str, *, retry_after_seconds: int = 0) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text
        self.retry_after_seconds = retry_after_seconds
