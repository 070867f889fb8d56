"""The base model of all parts of a policy file."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Spec(BaseModel):
    """Base model: camelCase in files, no unknown fields, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)
