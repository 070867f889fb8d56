"""ResourceQuotas: which of them kube-apiserver would refuse a new pod for, after Fairgate has charged it.

Such a pod never comes, and nothing in the API tells that. So what is known to be refused is not charged.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from webhook.core.model.demand import Demand
from webhook.core.model.names import CPU, PODS, Namespace, ResourceName
from webhook.core.model.reason import Code, Reason

_MILLI: Final = 1000


class Quota(NamedTuple):
    """One quota for all pods of its namespace: by the names of its lines, what is allowed and what is used."""

    name: str
    hard: Mapping[str, Fraction]
    used: Mapping[str, Fraction]


class QuotaIndex:
    """The quotas of all namespaces, as they were seen."""

    def __init__(self) -> None:
        self._quotas: dict[Namespace, dict[str, Quota]] = defaultdict(dict)

    def set(self, namespace: Namespace, quota: Quota) -> None:
        """Take in a quota."""
        self._quotas[namespace][quota.name] = quota

    def remove(self, namespace: Namespace, name: str) -> None:
        """Forget a quota."""
        if (known := self._quotas.get(namespace)) is not None:
            known.pop(name, None)
            if not known:
                del self._quotas[namespace]

    def of(self, namespace: Namespace) -> Iterable[Quota]:
        """List the quotas of a namespace."""
        return self._quotas.get(namespace, {}).values()


def exceeded(demand: Demand, quotas: Iterable[Quota]) -> Reason | None:
    """Tell which quota has no room for one more pod, in the words of kube-apiserver.

    Only what a pod requests is compared, and the number of pods. Limits are not known here.
    """
    asked = dict(_asked(demand))
    for quota in sorted(quotas, key=lambda each: each.name):
        over = [
            name
            for name, hard in sorted(quota.hard.items())
            if asked.get(name, 0) > 0 and name in quota.used and quota.used[name] + asked[name] > hard
        ]
        if over:
            parts = (("requested", asked), ("used", quota.used), ("limited", quota.hard))
            told = ", ".join(
                f"{what}: {','.join(f'{name}={_text(amounts[name])}' for name in over)}" for what, amounts in parts
            )
            return Reason(Code.RESOURCE_QUOTA_EXCEEDED, f"exceeded quota: {quota.name}, {told}")
    return None


def _asked(demand: Demand) -> Iterator[tuple[str, Fraction]]:
    """Name what a pod requests as a quota does; extended resources have one form only."""
    yield "pods", Fraction(1)
    yield "count/pods", Fraction(1)
    for name, amount in (demand.own or demand).requests:
        if name == PODS:
            continue
        exact = Fraction(amount, _MILLI) if name == CPU else Fraction(amount)
        yield f"requests.{name}", exact
        if _is_native(name):
            yield name, exact


def _is_native(name: ResourceName) -> bool:
    return "/" not in name


def _text(amount: Fraction) -> str:
    return str(amount.numerator) if amount.denominator == 1 else f"{float(amount * _MILLI):g}m"
