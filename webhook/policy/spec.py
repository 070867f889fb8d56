"""What every part of a policy file is made from."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Spec(BaseModel):
    """What all parts share: camelCase in files, nothing unknown, nothing changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)
