"""Types of the schema's scalar fields: each combines a parser of values.py with its JSON Schema."""

from fractions import Fraction
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, Strict, WithJsonSchema

from webhook.core.model.amount import UNLIMITED, Limit, format_limit
from webhook.core.model.duration import PATTERN as DURATION
from webhook.policy import values

Text = Annotated[str, Strict()]
_AMOUNT_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": f"^{values.AMOUNT}$"}]
}
_WEIGHT_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": values.MAX_WEIGHT},
        {"type": "string", "pattern": f"^{values.AMOUNT}$"},
    ]
}
_LIMIT_SCHEMA: Final[dict[str, Any]] = {"anyOf": [*_AMOUNT_SCHEMA["anyOf"], {"const": UNLIMITED.value}]}
_DURATION_SCHEMA: Final[dict[str, Any]] = {"anyOf": [{"type": "string", "pattern": f"^({DURATION})$"}, {"const": 0}]}
_DURATION_LIMIT_SCHEMA: Final[dict[str, Any]] = {"anyOf": [*_DURATION_SCHEMA["anyOf"], {"const": UNLIMITED.value}]}
_CORES_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": f"^{values.CORES}$"}]
}
_BYTES_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{values.BYTES}$"}]
}
Gpus = Annotated[int, PlainValidator(values.gpus), WithJsonSchema(_AMOUNT_SCHEMA)]
GpuLimit = Annotated[Limit, PlainValidator(values.limit), PlainSerializer(format_limit), WithJsonSchema(_LIMIT_SCHEMA)]
Seconds = Annotated[int, PlainValidator(values.seconds), WithJsonSchema(_DURATION_SCHEMA)]
GracePeriod = Annotated[Seconds, AfterValidator(values.grace_period)]
GangTimeout = Annotated[Seconds, AfterValidator(values.gang_timeout)]
SecondsLimit = Annotated[Limit, PlainValidator(values.seconds_limit), WithJsonSchema(_DURATION_LIMIT_SCHEMA)]
Weight = Annotated[int | Fraction, PlainValidator(values.weight), WithJsonSchema(_WEIGHT_SCHEMA)]
QueueDepth = Annotated[int, Strict(), Field(ge=0, le=values.MAX_QUEUE_DEPTH)]
DailyWindow = Annotated[
    tuple[int, int],
    PlainValidator(values.daily_window),
    WithJsonSchema({"type": "string", "pattern": f"^{values.WINDOW}$"}),
]
TimeZone = Annotated[str, Strict(), AfterValidator(values.time_zone)]
MovesPerHour = Annotated[int, Strict(), Field(ge=1, le=values.MAX_MOVES)]
Cores = Annotated[int, PlainValidator(values.cores), WithJsonSchema(_CORES_SCHEMA)]
Bytes = Annotated[int, PlainValidator(values.size), WithJsonSchema(_BYTES_SCHEMA)]
TeamRef = Annotated[str, Strict(), AfterValidator(values.team_name)]
Name = Annotated[str, Strict(), AfterValidator(values.label_value)]
Key = Annotated[str, Strict(), AfterValidator(values.label_key)]
LabelValue = Annotated[str, Strict(), AfterValidator(values.any_label_value)]
NamespaceGlob = Annotated[str, Strict(), AfterValidator(values.namespace_glob)]
ResourceKey = Annotated[str, Strict(), AfterValidator(values.resource_name)]
ClassName = Annotated[str, Strict(), AfterValidator(values.object_name)]
ApiGroup = Annotated[str, Strict(), AfterValidator(values.api_group)]
KindName = Annotated[str, Strict(), AfterValidator(values.kind_name)]
ResourcePlural = Annotated[str, Strict(), AfterValidator(values.resource_plural)]
HostPath = Annotated[str, Strict(), AfterValidator(values.host_path)]
FieldPath = Annotated[str, Strict(), AfterValidator(values.field_path)]
NumberPath = Annotated[str, Strict(), AfterValidator(values.number_path)]
