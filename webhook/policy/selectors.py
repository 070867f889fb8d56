"""Parts of a policy file with Kubernetes' own syntax: label selectors, node affinity, tolerations. See schema.py."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from webhook.core.model.selector import Effect, Operator
from webhook.policy.field_types import Key, LabelValue, NamespaceGlob, Text
from webhook.policy.problems import described
from webhook.policy.spec import Spec
from webhook.policy.values import any_label_value, is_integer


class Expression(Spec):
    """A condition on a label."""

    allowed: ClassVar[tuple[Operator, ...]] = tuple(Operator)

    key: Key = Field(description="The label's key.")
    operator: Operator = Field(description="How the label's value is compared.")
    values: list[Text] = Field(
        default=[],
        description="In, NotIn: at least one value. Gt, Lt: one integer, quoted. Exists, DoesNotExist: none.",
    )

    @model_validator(mode="after")
    def _has_fitting_values(self) -> Self:
        if self.operator not in self.allowed:
            known = ", ".join(self.allowed)
            raise ValueError(f"operator {self.operator} is for node affinity only; label selectors support {known}")
        match self.operator:
            case Operator.IN | Operator.NOT_IN:
                if not self.values:
                    raise ValueError(f"operator {self.operator} needs at least one value")
                for value in self.values:
                    any_label_value(value)
            case Operator.EXISTS | Operator.DOES_NOT_EXIST:
                if self.values:
                    raise ValueError(f"operator {self.operator} takes no values; use In to compare values")
            case Operator.GT | Operator.LT:
                if len(self.values) != 1 or not is_integer(self.values[0]):
                    raise ValueError(f'operator {self.operator} needs exactly one integer value, such as ["75000"]')
        return self


class SelectorExpression(Expression):
    """A condition of a label selector, which does not support Gt and Lt."""

    allowed: ClassVar[tuple[Operator, ...]] = (
        Operator.IN,
        Operator.NOT_IN,
        Operator.EXISTS,
        Operator.DOES_NOT_EXIST,
    )


class Selector(Spec):
    """A Kubernetes label selector: all conditions must hold."""

    match_labels: dict[Key, LabelValue] = Field(default={}, description="Labels with exactly these values.")
    match_expressions: list[SelectorExpression] = Field(default=[], description="Further conditions on labels.")

    @model_validator(mode="after")
    def _selects_something(self) -> Self:
        if not self.match_labels and not self.match_expressions:
            raise ValueError("an empty selector would select everything; give at least one label")
        return self


class Toleration(Spec):
    """A Kubernetes toleration."""

    key: Key | None = Field(default=None, description="The taint's key. Default (with Exists): every taint.")
    operator: Literal["Equal", "Exists"] = Field(default="Equal", description="Compare the value, or accept any.")
    value: LabelValue = Field(default="", description="The taint's value, for Equal.")
    effect: Effect | None = Field(default=None, description="The taint's effect. Default: every effect.")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.operator == "Exists" and self.value:
            raise ValueError(f"operator Exists takes no value; remove value {described(self.value)} or use Equal")
        if self.operator == "Equal" and self.key is None:
            raise ValueError("operator Equal needs a key; use Exists to tolerate every taint")
        return self


Protected = Annotated[
    Annotated[NamespaceGlob, Tag("a namespace")] | Annotated[Selector, Tag("a selector")],
    Discriminator(lambda value: "a selector" if isinstance(value, dict | Selector) else "a namespace"),
]
