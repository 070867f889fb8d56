"""Templates and static files of the page, read once; every value is escaped unless a template says otherwise."""

import time
from importlib.resources import files
from typing import Any, Final

from jinja2 import DictLoader, Environment, StrictUndefined

from webhook.core.model.amount import Limit, Units, Unlimited, format_limit, gpus_text
from webhook.core.model.text import place_text, span
from webhook.kube.reclaim.holds import rfc3339
from webhook.page.views.teams import line_text

_PACKAGE: Final = "webhook.page.http"
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
