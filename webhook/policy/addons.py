"""Sections that only optional services read: idle, notify.

The section `idle` of a policy file, and a team's own terms. Part of the schema, see schema.py.
"""

import re
from enum import StrEnum
from typing import Annotated, Final, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, PlainValidator, Strict, WithJsonSchema, field_validator, model_validator

from webhook.core.model.policy_addons import IdleAction, NotifyKind, NotifyTemplate, SeriesLabels, UtilizationMetric
from webhook.policy import values
from webhook.policy.documents import described
from webhook.policy.sections import Protected
from webhook.policy.values import LabelValue, Name, Seconds, Spec, Text


class Exporter(StrEnum):
    """Exporters whose names are known."""

    DCGM = "dcgm"
    AMD = "amd"
    GAUDI = "gaudi"


METRICS: Final = {
    Exporter.DCGM: (
        UtilizationMetric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", full=1),
        UtilizationMetric("DCGM_FI_DEV_GPU_UTIL", is_of_whole_gpus=True),
    ),
    Exporter.AMD: (UtilizationMetric("gpu_gfx_activity", is_of_whole_gpus=True),),
    Exporter.GAUDI: (UtilizationMetric("habanalabs_utilization"),),
}
"""The utilization of each exporter. DCGM's GPU_UTIL is 0 on MIG devices, by design (dcgm-exporter#216); AMD's is that
of the first partition (docs/configuration/metricslist.md of its exporter)."""

LABELS: Final = SeriesLabels(
    namespace=("exported_namespace", "namespace"),
    pod=("exported_pod", "pod"),
    gpu=("UUID", "uuid", "gpu_id", "GPU_I_ID", "gpu_partition_id", "Hostname", "hostname"),
    part=("GPU_I_ID", "gpu_partition_id"),
)
"""Labels of these exporters. Where Prometheus does not honor an exporter's labels, it renames them to exported_*: then
`pod` is the exporter's own pod (dcgm-exporter#85). Both charts of DCGM's exporter do not, AMD's does."""

Percent = Annotated[
    int,
    PlainValidator(values.percent),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 100}, {"type": "string", "pattern": "^[0-9]{1,3}%$"}]}
    ),
]
Window = Annotated[Seconds, AfterValidator(values.between(5, 24 * 3600))]
Interval = Annotated[Seconds, AfterValidator(values.between(1, 300))]
Pause = Annotated[Seconds, AfterValidator(values.between(0, 24 * 3600))]
MetricName = Annotated[str, Strict(), AfterValidator(values.metric_name)]
LabelName = Annotated[str, Strict(), AfterValidator(values.series_label)]
SeriesValue = Annotated[Text, Field(min_length=1, max_length=253)]
Labels = Annotated[list[LabelName], Field(min_length=1, max_length=16)]
FilePath = Annotated[str, Strict(), AfterValidator(values.host_path)]


class Prometheus(Spec):
    """The Prometheus that is asked for the utilization of GPUs."""

    url: Annotated[str, Strict(), AfterValidator(values.http_url)] = Field(
        description="Its address, such as https://prometheus.monitoring.svc:9090; a path before /api/v1 may follow."
    )
    ca_file: FilePath | None = Field(
        default=None, description="A file of the evictor with the CA of its certificate. Default: the system's CAs."
    )
    bearer_token_file: FilePath | None = Field(
        default=None, description="A file of the evictor with a token for it; read again for each round of queries."
    )


class Metric(Spec):
    """A metric of the utilization of GPUs."""

    name: MetricName = Field(description="Its name.")
    full: Annotated[int, Strict(), Field(ge=1, le=1_000_000)] = Field(
        default=100, description="Its value where a GPU is fully used: 100 for percent, 1 for a ratio."
    )
    whole_gpus: Annotated[bool, Strict()] = Field(
        default=False, description="Whether it means nothing for parts of a GPU, such as MIG devices."
    )


class SeriesNames(Spec):
    """Which labels of a series name its namespace, pod and GPU."""

    namespace: Labels = Field(default=list(LABELS.namespace), description="The first that is set counts.")
    pod: Labels = Field(default=list(LABELS.pod), description="The first that is set counts.")
    gpu: Labels = Field(default=list(LABELS.gpu), description="All of them together identify a GPU.")
    part: Labels = Field(default=list(LABELS.part), description="They name a part of a GPU, unless empty or 0.")


class IdleOfTeam(Spec):
    """A team's own terms of idle GPUs. Default: those of `idle`."""

    below: Percent | None = Field(default=None, description="Idle is a utilization below this, such as 5%.")
    for_: Window | None = Field(default=None, alias="for", description="For how long, up to 24h.")
    actions: list[IdleAction] | None = Field(default=None, description="What follows; [] for nothing.")


class Idle(Spec):
    """GPUs that pods hold and do not use: how that is measured, and what follows."""

    prometheus: Prometheus = Field(description="Where utilization is read.")
    series: Annotated[dict[LabelName, SeriesValue], Field(min_length=1, max_length=16)] = Field(
        description="Labels, with their values, of the exporter's own series, such as job: nvidia-dcgm-exporter. "
        "Series without them count for nothing."
    )
    exporter: Exporter = Field(default=Exporter.DCGM, description="Whose metrics: dcgm, amd or gaudi.")
    metrics: Annotated[list[Metric], Field(max_length=8)] = Field(
        default=[], description="The metrics themselves: the highest of them counts. Default: those of the exporter."
    )
    labels: SeriesNames = Field(default=SeriesNames(), description="Names of labels. Default: those of the exporters.")
    interval: Interval = Field(
        default=60, description="How often utilization is read, up to 5m; not more often than it is scraped."
    )
    below: Percent = Field(default=5, description="Idle is a utilization of every GPU of a pod below this: 5%.")
    for_: Window = Field(default=3600, alias="for", description="For how long, up to 24h.")
    share: Percent = Field(
        default=95, description="In what part of that time at least: a short use now and then does not reset it."
    )
    startup: Pause = Field(
        default=900, description="How long a pod is left alone after its start: it pulls its image and loads data."
    )
    notice: Pause = Field(default=600, description="Time between warning and eviction, with the action evict.")
    actions: list[IdleAction] = Field(
        default=[IdleAction.REPORT],
        description="What follows: report (Events), prefer (idle borrowers are evicted first), demote (guaranteed pods "
        "become preemptible while others wait), evict (after notice).",
    )
    exempt: list[Protected] = Field(
        default=[], description="Never idle: namespaces (names or globs), or selectors of pods by their labels."
    )

    @model_validator(mode="after")
    def _is_long_enough(self) -> Self:
        if self.for_ < 5 * self.interval:
            raise ValueError(f"for is {self.for_}s, less than five readings at an interval of {self.interval}s")
        return self


# The section `notify` of a policy file: who gets messages of what. Part of the schema, see schema.py.


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
            f"expected the name of a file in the folder of secrets, such as on-call-url, got {described(value)}"
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
        raise ValueError("Slack takes no alerts: send to Alertmanager, and let it send to Slack (slack_configs)")
    return value


FileName = Annotated[str, Strict(), AfterValidator(_file_name)]
NotifyPause = Annotated[Seconds, AfterValidator(_pause)]


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
        description="alertmanager: alerts for Alertmanager's /api/v2/alerts; json: the same alerts for receivers of "
        "Alertmanager's webhooks, version 4.",
    )
    kinds: Annotated[list[NotifyKind], Field(min_length=1)] = Field(
        default=list(NotifyKind), description="What it gets messages about. Default: everything."
    )
    interval: NotifyPause = Field(
        default="10m",
        validate_default=True,
        description="At most one message of one kind in this time; new trouble does not wait.",
    )
    repeat: NotifyPause = Field(
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
    within: NotifyPause = Field(default="10m", validate_default=True, description="… in this time.")


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
