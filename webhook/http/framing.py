"""Where the requests of a connection begin and end, and whether one is on its way. Pure.

httptools is the parser of Node.js, as is aiohttp's. aiohttp alone decides what a request means; what is read here only
bounds how long a client may take to send one.
"""

from enum import Enum, auto
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser


class Arriving(Enum):
    """What part of a request a client is sending."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()
    NOT_HTTP = auto()
    """What comes is no HTTP, or no longer HTTP/1."""


class Framing:
    """Follows the bytes of one connection. `arriving` is what they end in; `heads` counts those that were complete.

    `ends` counts the requests that were.
    """

    __slots__ = ("_parser", "arriving", "ends", "head_bytes", "heads")

    def __init__(self) -> None:
        self.arriving = Arriving.NOTHING
        self.heads = 0
        self.ends = 0
        self.head_bytes = 0
        """How many bytes have come of a head that is not complete."""
        self._parser: Final = HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """Follow some bytes. Whatever comes between two requests is taken for the beginning of a head."""
        if self.arriving is Arriving.NOT_HTTP:
            return
        if self.arriving is Arriving.NOTHING:
            self.arriving, self.head_bytes = Arriving.HEAD, 0
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self.arriving = Arriving.NOT_HTTP
        if self.arriving is Arriving.HEAD:
            self.head_bytes += len(data)

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        self.arriving, self.head_bytes = Arriving.HEAD, 0

    def on_headers_complete(self) -> None:
        """Note that a head is complete."""
        self.arriving = Arriving.BODY
        self.heads += 1

    def on_message_complete(self) -> None:
        """Note that a request is complete."""
        self.ends += 1
        self.arriving = Arriving.NOTHING
