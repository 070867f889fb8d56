"""Scalars of manifests as kubectl reads them: YAML 1.1 by sigs.k8s.io/yaml, then JSON. Measured with kubectl 1.37.

`010` is 8, `0x4` is 4, `1_0` is 10, `on` and `y` are true, and `2.0` is the integer 2.
"""

import math
import re
from typing import Final

_STR: Final = "tag:yaml.org,2002:str"
_TAGS: Final[dict[str, type | tuple[type, ...]]] = {
    "tag:yaml.org,2002:int": int,
    "tag:yaml.org,2002:float": (int, float),
    "tag:yaml.org,2002:bool": bool,
    "tag:yaml.org,2002:null": type(None),
}
_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE", "on", "On", "ON", "y", "Y", "yes", "Yes", "YES"), True),
    **dict.fromkeys(("false", "False", "FALSE", "off", "Off", "OFF", "n", "N", "no", "No", "NO"), False),
    **dict.fromkeys((f"{sign}.{word}" for sign in ("", "+") for word in ("inf", "Inf", "INF")), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_NUMBERS_START: Final = frozenset("-+.0123456789")
_INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]{1,64})|0[bB](?P<bin>[01]{1,64})|0[oO]?(?P<oct>[0-7]{1,64})"
    r"|(?P<dec>0|[1-9][0-9]{0,63}))"
)
_BASES: Final = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_FRACTION: Final = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+)?")
_INT64: Final = 2**63
_UINT64: Final = 2**64


def resolved(text: str) -> object:
    """Return the value of a scalar without quotes and tag: None, a boolean, a number or the text itself."""
    return _number(text) if text[:1] in _NUMBERS_START else _WORDS.get(text, text)


def tagged(text: str, tag: str) -> object:
    """Return the value of a scalar with a tag of YAML; raises ValueError if it has another type, or for other tags."""
    if tag == _STR:
        return text
    if tag not in _TAGS:
        raise ValueError(f"could not determine a constructor for the tag {tag}")
    value = resolved(text)
    is_boolean = isinstance(value, bool)
    if not isinstance(value, _TAGS[tag]) or (is_boolean and not tag.endswith(":bool")):
        raise ValueError(f"cannot decode {text!r} as {tag.rpartition(':')[2]}")
    return value


def key_text(value: object) -> str | None:
    """Return a key as it is in JSON, where each key is text; None if it has no text there."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
        case int():
            return str(value)
    return None


def _number(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("."):
        return _float(text.replace("_", "")) if _FRACTION.fullmatch(text) else text
    plain = text.replace("_", "")
    found = _INTEGER.fullmatch(plain)
    if found is not None:
        base = found.lastgroup or "dec"
        value = int(found["sign"] + found[base], _BASES[base])
        if -_INT64 <= value < _INT64:
            return value
        if _INT64 <= value < _UINT64:
            return float(value)  # JSON's readers in Kubernetes take integers of 64 bits with a sign
    value_or_text = _float(plain) if _FLOAT.fullmatch(plain) else plain
    return text if isinstance(value_or_text, str) else value_or_text


def _float(text: str) -> int | float | str:
    value = float(text)
    if math.isinf(value):
        return text  # out of the range of 64 bits
    return int(value) if value.is_integer() and abs(value) < _INT64 else value
