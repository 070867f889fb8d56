"""The section `notify` of a policy file: who gets messages of what. Part of the schema, see schema.py."""

import re
from typing import Annotated, Final, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, Strict, field_validator, model_validator

from webhook.core.model.notify_rules import NotifyKind, NotifyTemplate
from webhook.policy.field_types import LabelValue, Name, Seconds
from webhook.policy.problems import described
from webhook.policy.spec import Spec

MAX_TARGETS: Final = 16
MAX_URL: Final = 2048
LEAST_SECONDS: Final = 10
LONGEST_SECONDS: Final = 7 * 24 * 3600
_FILE: Final = re.compile(r"(?!\.\.)[-._A-Za-z0-9]{1,253}")
_HEADER: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,63}")
_URL: Final = re.compile(r"[!-~]+")
_OWN_HEADERS: Final = re.compile(
    "connection|content-.*|expect|host|keep-alive|te|trailer|transfer-encoding|upgrade|user-agent", re.IGNORECASE
)
_SLACK: Final = "hooks.slack.com"
_ALERTS: Final = "/api/v2/alerts"


def _file_name(value: str) -> str:
    if not _FILE.fullmatch(value):
        raise ValueError(
            f"expected the name of a file in the folder of secrets, such as slack-url, got {described(value)}"
        )
    return value


def _pause(value: int) -> int:
    if not LEAST_SECONDS <= value <= LONGEST_SECONDS:
        raise ValueError(f"expected from {LEAST_SECONDS}s to {LONGEST_SECONDS // 3600}h, got {value}s")
    return value


def parse_url(text: str) -> SplitResult:
    """Return the parts of an address to send to. Raises ValueError, whose text does not contain the address."""
    if len(text) > MAX_URL or not _URL.fullmatch(text):
        raise ValueError(f"expected a URL of at most {MAX_URL} printable ASCII characters without spaces")
    try:
        parts = urlsplit(text)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ValueError("expected a URL such as https://alerts.example.com/hook: bad host or port") from None
    if parts.scheme not in ("https", "http") or not is_whole:
        raise ValueError("expected a URL such as https://alerts.example.com/hook")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a user or password in the URL is not supported: write a header or a tokenFile")
    if parts.fragment:
        raise ValueError("a URL to send to has no fragment (#…)")
    return parts


def _url(value: str) -> str:
    if parse_url(value).hostname == _SLACK:
        raise ValueError(
            "the address of a Slack webhook is a secret, and all who may read Reports see the policy: put it "
            "into a file of the folder of secrets, and name that as urlFile"
        )
    return value


FileName = Annotated[str, Strict(), AfterValidator(_file_name)]
Pause = Annotated[Seconds, AfterValidator(_pause)]


class Header(Spec):
    """A header of each request, for a receiver that wants another one than Authorization: Bearer."""

    name: Annotated[str, Strict()] = Field(description="Its name, such as X-Api-Key.")
    file: FileName = Field(description="The file in the folder of secrets that holds its value.")

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if not _HEADER.fullmatch(name) or _OWN_HEADERS.fullmatch(name):
            raise ValueError(
                f"expected a header such as X-Api-Key that HTTP itself does not need, got {described(name)}"
            )
        return name


class Target(Spec):
    """One receiver of messages, by HTTP POST."""

    name: Name = Field(description="Unique name, for metrics, logs and `fairgate doctor`.")
    url: Annotated[str, Strict(), AfterValidator(_url)] | None = Field(
        default=None, description="Where to send to: https, or http where no secret is sent."
    )
    url_file: FileName | None = Field(
        default=None, description="Instead of url: the file in the folder of secrets that holds it."
    )
    template: NotifyTemplate = Field(
        default=NotifyTemplate.JSON,
        description="json: docs/notify.md has the fields; slack: for a webhook of Slack or Mattermost; alertmanager: "
        "alerts for Alertmanager's /api/v2/alerts.",
    )
    kinds: Annotated[list[NotifyKind], Field(min_length=1)] = Field(
        default=list(NotifyKind), description="What it gets messages about. Default: everything."
    )
    interval: Pause = Field(
        default="10m", validate_default=True, description="At most one message of one subject in this time."
    )
    repeat: Pause = Field(
        default="4h",
        validate_default=True,
        description="When a state that lasts is sent again. Not for alertmanager, which gets it in each interval.",
    )
    token_file: FileName | None = Field(
        default=None, description="The file in the folder of secrets that holds a token, sent as Authorization: Bearer."
    )
    header: Header | None = Field(default=None, description="Another header with a secret, instead of tokenFile.")
    ca_file: FileName | None = Field(
        default=None, description="The file in the folder of secrets with the CAs (PEM) of its certificate."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.url is None) == (self.url_file is None):
            raise ValueError("expected exactly one of url and urlFile")
        if self.token_file is not None and self.header is not None:
            raise ValueError("expected at most one of tokenFile and header")
        if self.url is not None and self.url.startswith("http:") and (self.token_file or self.header):
            raise ValueError("a secret would be sent in clear text: write https, or leave out tokenFile and header")
        if self.template is NotifyTemplate.ALERTMANAGER and self.url is not None and _ALERTS not in self.url:
            raise ValueError(f"expected the address of Alertmanager's API, such as https://alertmanager:9093{_ALERTS}")
        return self


class Refusals(Spec):
    """From when on refused pods of one team are worth a message."""

    above: Annotated[int, Strict(), Field(ge=0, le=1_000_000)] = Field(
        default=20, description="More refused requests of one team than this …"
    )
    within: Pause = Field(default="10m", validate_default=True, description="… in this time.")


class Limits(Spec):
    """From when on the use of a limit is worth a message."""

    percent: Annotated[int, Strict(), Field(ge=1, le=100)] = Field(
        default=90, description="GPUs held by a team or department, in percent of its limit."
    )


class Notify(Spec):
    """Messages to people by HTTP: evictions, refusals, limits, idle GPUs, trouble with certificates or the ledger."""

    targets: Annotated[list[Target], Field(max_length=MAX_TARGETS)] = Field(
        default=[], description="The receivers. Default: none."
    )
    cluster: LabelValue = Field(default="", description="The name of this cluster in messages.")
    refusals: Refusals = Field(default=Refusals(), description="When refusals are worth a message.")
    limits: Limits = Field(default=Limits(), description="When the use of a limit is worth a message.")

    @field_validator("targets")
    @classmethod
    def _names_each_once(cls, targets: list[Target]) -> list[Target]:
        names = [target.name for target in targets]
        if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
            raise ValueError(f"target {twice} appears twice; keep one")
        return targets
