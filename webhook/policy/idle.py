"""The section `idle` of a policy file, and a team's own terms. Part of the schema, see schema.py."""

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, PlainValidator, Strict, WithJsonSchema, model_validator

from webhook.core.model.idle_rules import IdleAction, SeriesLabels, UtilizationMetric
from webhook.policy import values
from webhook.policy.field_types import Seconds, Text
from webhook.policy.selectors import Protected
from webhook.policy.spec import Spec


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
