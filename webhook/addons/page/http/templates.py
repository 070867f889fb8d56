"""Templates, static files, addresses and forms of the page.

Forms that a browser sends: bounded in size and in time.
"""

import asyncio
import time
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from aiohttp import web
from jinja2 import DictLoader, Environment, StrictUndefined

from webhook.addons.page.views.teams import line_text
from webhook.core.model.amounts import Limit, Units, Unlimited, format_limit, gpus_text, place_text, span
from webhook.kube.nodes.holds import rfc3339

MOST_BYTES: Final = 512 << 10
"""Bytes of a form: a manifest of 500 kB is longer than anyone reads."""

SECONDS: Final = 20.0
"""For how long a form may arrive."""


async def read_form(request: web.Request) -> Mapping[str, str]:
    """Return the text fields of a form. Raises HTTPRequestEntityTooLarge, TimeoutError."""
    if request.content_type != "application/x-www-form-urlencoded":
        raise web.HTTPUnsupportedMediaType
    async with asyncio.timeout(SECONDS):
        form = await request.post()
    return {name: value for name, value in form.items() if isinstance(value, str)}


# Addresses of the page that keep what its viewer chose, so that a URL shows the same again, also after a sign-in.


VIEWS: Final = ("/", "/teams", "/queue", "/decisions", "/search", "/review", "/explain", "/moves", "/code")
CHOICES: Final = ("team", "node", "group", "sort", "q", "kind", "page", "namespace", "name", "of", "user")
"""What a view's address may say: the team that is highlighted, grouping, filters, the page of a table, a pod."""

LONGEST_LINK: Final = 300
"""Characters of one choice: a namespace and a name with a slash between them are shorter."""


class Links:
    """Links of one view as it was asked for."""

    def __init__(self, path: str, query: Mapping[str, str], *, team: str = "") -> None:
        self.path = path
        self._team = team
        self._query = {name: value[:LONGEST_LINK] for name in CHOICES if (value := query.get(name, ""))}

    def chosen(self, name: str) -> str:
        """Return a choice of the address; "" where it has none."""
        return self._query.get(name, "")

    def here(self, **changes: str | int) -> str:
        """Return this view with other choices; an empty one is left out."""
        return _address(self.path, {**self._query, **changes})

    def to(self, path: str, **choices: str | int) -> str:
        """Return another view, in which the same team is highlighted."""
        return _address(path, {"team": self._team, **choices})


def own_address(text: str) -> str:
    """Return an address of a view as this page writes it; that of the map for anything else."""
    try:
        found = urlsplit(text)
        query = dict(parse_qsl(found.query, max_num_fields=len(CHOICES) * 2))
    except ValueError:
        return VIEWS[0]
    if found.scheme or found.netloc or found.path not in VIEWS:
        return VIEWS[0]
    return Links(found.path, query).here()


def _address(path: str, choices: Mapping[str, str | int]) -> str:
    query = urlencode({name: value for name, value in choices.items() if value not in ("", None)})
    return f"{path}?{query}" if query else path


# Templates and static files of the page, read once; every value is escaped unless a template says otherwise.


_PACKAGE: Final = "webhook.addons.page.http"
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class StaticFile:
    """One file as it is served."""

    def __init__(self, body: bytes, content_type: str) -> None:
        self.body = body
        self.content_type = content_type


def static_files() -> dict[str, StaticFile]:
    """Return the files that browsers fetch, by name. There is no other way to a file: no path is joined."""
    found = {}
    for each in (files(_PACKAGE) / "static").iterdir():
        suffix = f".{each.name.rpartition('.')[2]}"
        if suffix in _TYPES:
            found[each.name] = StaticFile(each.read_bytes(), _TYPES[suffix])
    return found


class Templates:
    """Renders pages."""

    def __init__(self) -> None:
        sources = {each.name: each.read_text() for each in (files(_PACKAGE) / "templates").iterdir()}
        self._environment = Environment(
            loader=DictLoader(sources), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._environment.filters["age"] = age_since
        self._environment.filters["exact"] = rfc3339
        self._environment.filters["middle"] = middle
        self._environment.filters["place"] = place_text
        self._environment.filters["gpus"] = gpus
        self._environment.filters["units"] = units
        self._environment.filters["line"] = line_text

    def render(self, name: str, /, **values: Any) -> str:  # noqa: ANN401 - a template takes values of every type
        """Return a page."""
        return self._environment.get_template(name).render(**values)


def age_since(at: int) -> str:
    """Return how long ago a time was, in the largest unit that fits; "unknown" for 0."""
    return span(max(0, int(time.time()) - at)) if at else "unknown"


def middle(name: str, longest: int = 44) -> str:
    """Return a name of a bounded length: its middle is left out, since names that begin alike differ at their ends."""
    return name if len(name) <= longest else f"{name[: longest // 2]}…{name[-(longest // 2 - 1) :]}"


def units(amount: Limit | Units) -> str:
    """Return an amount in GPU units, or a limit."""
    return format_limit(amount) if isinstance(amount, Unlimited) else gpus_text(amount)


def gpus(number: float) -> str:
    """Return a number of GPUs, to a hundredth."""
    return f"{round(number, 2):,}"
