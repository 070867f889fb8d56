"""How values are written: parsers, their types, the base of all sections.

The base model of all parts of a policy file.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any, Final
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    Strict,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from webhook.core.model.amounts import (
    DEVICE_CLASS,
    UNASSIGNED,
    UNLIMITED,
    Limit,
    format_limit,
    parse_gpus,
    parse_seconds,
)
from webhook.core.model.amounts import PATTERN as DURATION
from webhook.core.model.pod import DEFAULT_GRACE_SECONDS
from webhook.core.model.policy_addons import UTC_NAME
from webhook.core.world.world import LONGEST_SECONDS
from webhook.policy.documents import described


class Spec(BaseModel):
    """Base model: camelCase in files, no unknown fields, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


# Parsers of the scalar fields of a policy: amounts, durations, names and keys. Errors say what is expected.


MAX_GPUS: Final = 1_000_000_000  # keeps every sum of GPU units within 64 bits

MAX_WEIGHT: Final = 1_000_000
MAX_QUEUE_DEPTH: Final = 100_000
MAX_MOVES: Final = 1000

AMOUNT: Final = r"(0|[1-9][0-9]*)(\.[0-9]+|/[1-9][0-9]*)?"
CORES: Final = r"[0-9]{1,6}(\.[0-9]{1,3}|m)?"
BYTES: Final = r"[0-9]{1,12}(Ki|Mi|Gi|Ti)?"
LABEL_VALUE: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_SUBDOMAIN: Final = rf"{DNS_LABEL}(\.{DNS_LABEL})*"
WINDOW: Final = r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])"
HOST_PATH: Final = r"(/(?!\.{1,2}(/|$))[-A-Za-z0-9._@:+=,]+)+"
NAMESPACE_GLOB: Final = r"[-a-z0-9*?]+"
_FIELD: Final = r"[A-Za-z_][-A-Za-z0-9_]*"

LEAST_GANG_SECONDS: Final = 10
LONGEST_GANG_SECONDS: Final = 24 * 3600
_WINDOW: Final = re.compile(WINDOW)
_HOURS: Final = 24
_MAX_NUMBER = 40  # characters of a number
_MAX_NAME = 63  # longest label value, namespace name and name part of a key
_MAX_SUBDOMAIN = 253
_MAX_PATH = 4096
_WHOLE = 100
_BINARY = {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


def _matching(pattern: str, longest: int, alphabet: str) -> Callable[[str], str]:
    """Return a check of names with a pattern."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if len(value) > longest or not compiled.fullmatch(value):
            raise ValueError(f"expected at most {longest} {alphabet}; got {described(value)}")
        return value

    return check


label_value: Final = _matching(
    LABEL_VALUE, _MAX_NAME, "letters, digits, -, _ and ., with a letter or digit at both ends"
)
"""Checks a name that is, or becomes, the value of a label."""
host_path: Final = _matching(
    HOST_PATH, _MAX_PATH, "characters of an absolute path such as /data, without . and .. parts"
)
"""Checks a host path: it is compared as text, so only its normalized form is allowed."""
object_name: Final = _matching(DNS_SUBDOMAIN, _MAX_SUBDOMAIN, "lower-case letters, digits, - and .")
api_group: Final = _matching(
    DNS_SUBDOMAIN, _MAX_SUBDOMAIN, "lower-case letters, digits, - and ., such as batch.volcano.sh"
)
"""Checks an API group other than the core one, whose kinds are all built in."""
kind_name: Final = _matching(r"[A-Z][A-Za-z0-9]*", _MAX_NAME, "letters and digits, a capital first, such as PyTorchJob")
resource_plural: Final = _matching(DNS_LABEL, _MAX_NAME, "lower-case letters and digits, such as pytorchjobs")
metric_name: Final = _matching(r"[A-Za-z_:][A-Za-z0-9_:]*", _MAX_SUBDOMAIN, "letters, digits, _ and :")
series_label: Final = _matching(r"[A-Za-z_][A-Za-z0-9_]*", _MAX_SUBDOMAIN, "letters, digits and _, such as job")
field_path: Final = _matching(
    rf"{_FIELD}(\.{_FIELD})*", _MAX_SUBDOMAIN, "names of fields with dots between, such as spec.template"
)
number_path: Final = _matching(
    rf"(\$\.)?{_FIELD}(\.{_FIELD})*",
    _MAX_SUBDOMAIN,
    "names of fields with dots between, such as spec.replicas; $. before them starts from the object",
)
_glob: Final = _matching(NAMESPACE_GLOB, _MAX_SUBDOMAIN, "lower-case letters, digits, -, * and ?")
_namespace: Final = _matching(
    DNS_LABEL, _MAX_NAME, "lower-case letters, digits and -, with a letter or digit at both ends"
)


def gpus(value: object) -> int:
    """Parse an amount of GPUs as GPU units."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        # a ValueError, not a TypeError: pydantic reports only the former
        raise ValueError(f'expected GPUs such as 8, "2.5" or "1/7", got {described(value)}')  # noqa: TRY004
    text = str(value)
    # The pattern is checked first: Fraction also accepts "1e999999999", and would run for hours.
    if len(text) > _MAX_NUMBER or not re.fullmatch(rf"-?{AMOUNT}", text):
        raise ValueError(f'expected GPUs such as 8, "2.5" or "1/7", got {described(value)}')
    units = parse_gpus(text)
    if units > parse_gpus(MAX_GPUS):
        raise ValueError(f"more than {MAX_GPUS:,} GPUs; write unlimited for no limit")
    return units


def limit(value: object) -> Limit:
    """Parse a limit: GPUs, or the word unlimited."""
    if value == UNLIMITED.value:
        return UNLIMITED
    try:
        return gpus(value)
    except ValueError as error:
        raise ValueError(str(error).replace("expected GPUs", "expected unlimited or GPUs")) from None


def seconds(value: object) -> int:
    """Parse a Go-style duration of whole seconds: 30s, 10m, 1h30m."""
    if value == 0 and not isinstance(value, bool):
        return 0
    try:
        return parse_seconds(value if isinstance(value, str) else "")
    except ValueError as error:
        raise ValueError(f"{error}, got {described(value)}") from None


def grace_period(value: int) -> int:
    """Check a maximum grace period: at least the default, and short enough that no charge outlives its pod for days."""
    if not DEFAULT_GRACE_SECONDS <= value <= LONGEST_SECONDS:
        least = f"at least {DEFAULT_GRACE_SECONDS}s, the default of pods"
        raise ValueError(f"expected {least}, and at most {LONGEST_SECONDS // 3600}h, got {value}s")
    return value


def gang_timeout(value: int) -> int:
    """Check how long a gang may take to come: room is kept for so long, for pods that do not exist."""
    if not LEAST_GANG_SECONDS <= value <= LONGEST_GANG_SECONDS:
        expected = f"from {LEAST_GANG_SECONDS}s to {LONGEST_GANG_SECONDS // 3600}h"
        raise ValueError(f"expected {expected}, got {value}s")
    return value


def daily_window(value: object) -> tuple[int, int]:
    """Parse a time of day such as 02:00-05:00 into minutes after midnight: where it begins and where it ends."""
    found = _WINDOW.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        hour, minute, last_hour, last_minute = map(int, found.groups())
        if found.group(1, 2) != found.group(3, 4) and not (last_hour == _HOURS and last_minute):
            return 60 * hour + minute, 60 * last_hour + last_minute
    raise ValueError(f"expected a time of day such as 02:00-05:00, got {described(value)}")


def time_zone(value: str) -> str:
    """Check the name of a time zone: one that this machine knows."""
    try:
        if value != UTC_NAME:
            ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"expected a time zone such as Europe/Berlin, got {described(value)}") from None
    return value


def seconds_limit(value: object) -> Limit:
    """Parse a duration, or the word unlimited."""
    if value == UNLIMITED.value:
        return UNLIMITED
    try:
        return seconds(value)
    except ValueError as error:
        raise ValueError(str(error).replace("expected a duration", "expected unlimited or a duration")) from None


def cores(value: object) -> int:
    """Parse an amount of cpu as thousandths of a core: 8, 0.5 or 500m."""
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(CORES, text):
        raise ValueError(f'expected cpu such as 8, "0.5" or 500m, got {described(value)}')
    return int(text[:-1]) if text.endswith("m") else int(Fraction(text) * 1000)


def size(value: object) -> int:
    """Parse an amount of memory as bytes: 64Gi, 512Mi."""
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(BYTES, text):
        raise ValueError(f"expected memory such as 64Gi or 512Mi, got {described(value)}")
    unit = text[-2:] if text.endswith("i") else ""
    return int(text.removesuffix(unit)) << _BINARY[unit]


def is_integer(text: str) -> bool:
    """Whether the operators Gt and Lt can compare with this text."""
    return re.fullmatch(r"-?[0-9]{1,18}", text) is not None


def percent(value: object) -> int:
    """Parse a percentage of whole numbers from 1 to 100: 5 or "5%"."""
    text = str(value).removesuffix("%") if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not re.fullmatch(r"[0-9]{1,3}", text) or not 1 <= int(text) <= _WHOLE:
        raise ValueError(f"expected a percentage from 1% to {_WHOLE}%, got {described(value)}")
    return int(text)


def between(least: int, most: int) -> Callable[[int], int]:
    """Return a check of a duration in seconds."""

    def check(value: int) -> int:
        if not least <= value <= most:
            raise ValueError(f"expected from {least}s to {most // 60}m, got {value}s")
        return value

    return check


def http_url(value: str) -> str:
    """Check the URL of a server: http or https, a host, no user, query or fragment."""
    try:
        parts = urlsplit(value)
        is_plain = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_plain = False
    if not is_plain or len(value) > _MAX_PATH or not re.fullmatch(r"[!-~]+", value) or re.search(r"[@?#\\]", value):
        raise ValueError(f"expected a URL such as https://prometheus.monitoring.svc:9090, got {described(value)}")
    return value.rstrip("/")


def weight(value: object) -> int | Fraction:
    """Parse a weight exactly: 1, 0.5, 3 or 1/3, above 0."""
    text = str(value)
    is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
    if not is_number or len(text) > _MAX_NUMBER or not re.fullmatch(rf"-?{AMOUNT}", text):
        raise ValueError(f'expected a weight such as 2, 0.5 or "1/3", got {described(value)}')
    exact = Fraction(text)
    if not 0 < exact <= MAX_WEIGHT:
        raise ValueError(f"expected a weight above 0, and at most {MAX_WEIGHT:,}, got {text}")
    return exact.numerator if exact.denominator == 1 else exact


def one_department(value: object) -> object:
    """Refuse a list of departments: the tree would not say which one lends, and which limit holds."""
    if isinstance(value, list):
        raise ValueError(f"a team belongs to one department, got a list of {len(value)}; name one")  # noqa: TRY004
    return value


def team_name(value: str) -> str:
    """Check a team's name, which becomes the value of a label."""
    if value == UNASSIGNED:
        raise ValueError(f'"{UNASSIGNED}" is reserved for namespaces without a team; choose another name')
    return label_value(value)


def any_label_value(value: str) -> str:
    """Check a label's value, which may be empty."""
    return value and label_value(value)


def label_key(value: str) -> str:
    """Check the key of a label, annotation or taint: NAME or PREFIX/NAME."""
    prefix, slash, name = value.rpartition("/")
    if slash and (len(prefix) > _MAX_SUBDOMAIN or not re.fullmatch(DNS_SUBDOMAIN, prefix)):
        raise ValueError(f"expected a key such as nvidia.com/gpu.product, got {described(value)}: bad prefix")
    if len(name) > _MAX_NAME or not re.fullmatch(LABEL_VALUE, name):
        raise ValueError(f"expected a key such as nvidia.com/gpu.product, got {described(value)}: bad name")
    return value


def resource_name(value: str) -> str:
    """Check the name of an extended resource, or of a DeviceClass: deviceclass.resource.kubernetes.io/CLASS."""
    prefix, slash, rest = value.partition("/")
    if value.startswith(DEVICE_CLASS):
        return DEVICE_CLASS + object_name(rest)
    if not slash or prefix == "kubernetes.io" or prefix.endswith(".kubernetes.io"):
        raise ValueError(f"expected an extended resource such as nvidia.com/gpu, got {described(value)}")
    return label_key(value)


def namespace_glob(value: str) -> str:
    """Check a namespace's name, or a glob in which * stands for any text and ? for one character."""
    return _glob(value) if "*" in value or "?" in value else _namespace(value)


# Types of the schema's scalar fields: each combines a parser of values.py with its JSON Schema.


Text = Annotated[str, Strict()]
_AMOUNT_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": f"^{AMOUNT}$"}]
}
_WEIGHT_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_WEIGHT},
        {"type": "string", "pattern": f"^{AMOUNT}$"},
    ]
}
_LIMIT_SCHEMA: Final[dict[str, Any]] = {"anyOf": [*_AMOUNT_SCHEMA["anyOf"], {"const": UNLIMITED.value}]}
_DURATION_SCHEMA: Final[dict[str, Any]] = {"anyOf": [{"type": "string", "pattern": f"^({DURATION})$"}, {"const": 0}]}
_DURATION_LIMIT_SCHEMA: Final[dict[str, Any]] = {"anyOf": [*_DURATION_SCHEMA["anyOf"], {"const": UNLIMITED.value}]}
_CORES_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": f"^{CORES}$"}]
}
_BYTES_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{BYTES}$"}]
}
Gpus = Annotated[int, PlainValidator(gpus), WithJsonSchema(_AMOUNT_SCHEMA)]
GpuLimit = Annotated[Limit, PlainValidator(limit), PlainSerializer(format_limit), WithJsonSchema(_LIMIT_SCHEMA)]
Seconds = Annotated[int, PlainValidator(seconds), WithJsonSchema(_DURATION_SCHEMA)]
GracePeriod = Annotated[Seconds, AfterValidator(grace_period)]
GangTimeout = Annotated[Seconds, AfterValidator(gang_timeout)]
SecondsLimit = Annotated[Limit, PlainValidator(seconds_limit), WithJsonSchema(_DURATION_LIMIT_SCHEMA)]
Weight = Annotated[int | Fraction, PlainValidator(weight), WithJsonSchema(_WEIGHT_SCHEMA)]
QueueDepth = Annotated[int, Strict(), Field(ge=0, le=MAX_QUEUE_DEPTH)]
DailyWindow = Annotated[
    tuple[int, int],
    PlainValidator(daily_window),
    WithJsonSchema({"type": "string", "pattern": f"^{WINDOW}$"}),
]
TimeZone = Annotated[str, Strict(), AfterValidator(time_zone)]
MovesPerHour = Annotated[int, Strict(), Field(ge=1, le=MAX_MOVES)]
Cores = Annotated[int, PlainValidator(cores), WithJsonSchema(_CORES_SCHEMA)]
Bytes = Annotated[int, PlainValidator(size), WithJsonSchema(_BYTES_SCHEMA)]
TeamRef = Annotated[str, Strict(), AfterValidator(team_name)]
Name = Annotated[str, Strict(), AfterValidator(label_value)]
Key = Annotated[str, Strict(), AfterValidator(label_key)]
LabelValue = Annotated[str, Strict(), AfterValidator(any_label_value)]
NamespaceGlob = Annotated[str, Strict(), AfterValidator(namespace_glob)]
ResourceKey = Annotated[str, Strict(), AfterValidator(resource_name)]
ClassName = Annotated[str, Strict(), AfterValidator(object_name)]
ApiGroup = Annotated[str, Strict(), AfterValidator(api_group)]
KindName = Annotated[str, Strict(), AfterValidator(kind_name)]
ResourcePlural = Annotated[str, Strict(), AfterValidator(resource_plural)]
HostPath = Annotated[str, Strict(), AfterValidator(host_path)]
FieldPath = Annotated[str, Strict(), AfterValidator(field_path)]
NumberPath = Annotated[str, Strict(), AfterValidator(number_path)]
