"""Messages for pydantic's validation errors: what is wrong, and what is expected."""

import types
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from webhook.policy.problems import Path, described, shortened
from webhook.policy.schema import UNION_TAGS

_EXPECTED = {
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "int_type": "a whole number",
}


def field_errors(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[Path, str]]:
    """Yield the path and the message of each error in a value of this model."""
    for details in error.errors(include_url=False):
        path = tuple(part for part in details["loc"] if part not in UNION_TAGS and part != "[key]")
        yield path, _message(details, path, model)


def expected_one_of(allowed: Sequence[str], got: object) -> str:
    """Return a message with the allowed words and the closest match."""
    text = f"expected {allowed[0]}" if len(allowed) == 1 else f"expected one of {', '.join(allowed)}"
    return f"{text}; got {described(got)}{_guess(got, allowed)}"


def _message(details: ErrorDetails, path: Path, model: type[BaseModel]) -> str:
    got, context = details["input"], details.get("ctx", {})
    match details["type"]:
        case "value_error":
            text = str(context["error"])
        case "extra_forbidden":
            text = _unknown_field(path, model)
        case "missing":
            field = next(f for f in _model_at(model, path[:-1]).model_fields.values() if f.alias == path[-1])
            text = f"required: {(field.description or '').rstrip('.')}"
        case "enum" | "literal_error":
            words = str(context["expected"]).replace(" or ", ", ").split(", ")
            text = expected_one_of(["true" if word == "True" else word.strip("'") for word in words], got)
        case "too_short":
            text = "expected at least one item; otherwise leave the field out"
        case "greater_than_equal":
            text = f"expected {context['ge']} or more, got {described(got)}"
        case "less_than_equal":
            text = f"expected {context['le']} or less, got {described(got)}"
        case kind:
            text = _wrong_type(_EXPECTED[kind], got) if kind in _EXPECTED else f"{details['msg']}, got {described(got)}"
    return text


def _unknown_field(path: Path, model: type[BaseModel]) -> str:
    known = [field.alias or name for name, field in _model_at(model, path[:-1]).model_fields.items()]
    return "unknown field" + (_guess(path[-1], known) or f"; known here: {', '.join(known)}")


def _wrong_type(expected: str, got: object) -> str:
    quoted = ""
    if expected == "text" and isinstance(got, bool | int | float):
        quoted = f'; quote it: "{shortened(str(got).lower())}"'
    return f"expected {expected}, got {described(got)}{quoted}"


def _guess(got: object, allowed: Sequence[str]) -> str:
    by_lower = {word.lower(): word for word in allowed}
    close = get_close_matches(str(got).lower(), by_lower, n=1)
    return f'; did you mean "{by_lower[close[0]]}"?' if close else ""


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel]:
    """Return the model of the mapping at this path inside a model."""
    current: Any = model
    for part in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            current = next(field.annotation for field in current.model_fields.values() if field.alias == part)
            current = _bare(current)
        elif get_origin(current) in (list, dict):
            current = _bare(get_args(current)[-1])
    found: type[BaseModel] = _bare(current)
    return found


def _bare(annotation: Any) -> Any:  # noqa: ANN401 - annotations have no common type
    """Return a type without Annotated; of a union its structured member."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [_bare(member) for member in get_args(annotation)]
        return next(m for m in members if m not in (str, type(None)))
    return annotation
