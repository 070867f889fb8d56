"""Addresses of the page that keep what its viewer chose, so that a URL shows the same again, also after a sign-in."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

VIEWS: Final = ("/", "/teams", "/line", "/decisions", "/search", "/review", "/explain", "/moves")
CHOICES: Final = ("team", "node", "group", "sort", "q", "kind", "page", "namespace", "name")
"""What a view's address may say: the team that is highlighted, grouping, filters, the page of a table, a pod."""

LONGEST: Final = 300
"""Characters of one choice: a namespace and a name with a slash between them are shorter."""


class Links:
    """Links of one view as it was asked for."""

    def __init__(self, path: str, query: Mapping[str, str], *, team: str = "") -> None:
        self.path = path
        self._team = team
        self._query = {name: value[:LONGEST] for name in CHOICES if (value := query.get(name, ""))}

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
