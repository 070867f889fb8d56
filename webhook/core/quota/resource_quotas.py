"""ResourceQuotas: which of them would make kube-apiserver reject a new pod after Fairgate has charged it.

Such a pod never appears, and nothing in the API reports that. So a pod known to be rejected is not charged.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from webhook.core.model.demand import Demand
from webhook.core.model.names import CPU, PODS, Namespace, ResourceName
from webhook.core.model.reason import Code, Reason

_MILLI: Final = 1000


class Quota(NamedTuple):
    """One quota for all pods of its namespace: the allowed and used amounts by line."""

    name: str
    hard: Mapping[str, Fraction]
    used: Mapping[str, Fraction]


class QuotaIndex:
    """The quotas of all namespaces, as last seen."""

    def __init__(self) -> None:
        self._quotas: dict[Namespace, dict[str, Quota]] = defaultdict(dict)

    def set(self, namespace: Namespace, quota: Quota) -> None:
        """Add or update a quota."""
        self._quotas[namespace][quota.name] = quota

    def remove(self, namespace: Namespace, name: str) -> None:
        """Remove a quota."""
        if (known := self._quotas.get(namespace)) is not None:
            known.pop(name, None)
            if not known:
                del self._quotas[namespace]

    def of(self, namespace: Namespace) -> Collection[Quota]:
        """Return the quotas of a namespace."""
        return self._quotas.get(namespace, {}).values()


def exceeded(demand: Demand, quotas: Collection[Quota]) -> Reason | None:
    """Return the first quota without room for one more pod, in the wording of kube-apiserver; None if all have room.

    Only a pod's requests and the number of pods are compared. Limits are not known here.
    """
    if not quotas:
        return None
    requests = dict(_requests(demand))
    for quota in sorted(quotas, key=lambda each: each.name):
        over = [
            name
            for name, hard in sorted(quota.hard.items())
            if requests.get(name, 0) > 0 and name in quota.used and quota.used[name] + requests[name] > hard
        ]
        if over:
            words = "exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}"
            parts = {"requested": requests, "used": quota.used, "limited": quota.hard}
            amounts = {what: ",".join(f"{name}={_quantity(of[name])}" for name in over) for what, of in parts.items()}
            return Reason(Code.RESOURCE_QUOTA_EXCEEDED, words, {"quota": quota.name, **amounts})
    return None


def _requests(demand: Demand) -> Iterator[tuple[str, Fraction]]:
    """Return a pod's requests under the names of a quota; extended resources have one form only."""
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


def _quantity(amount: Fraction) -> str:
    return str(amount.numerator) if amount.denominator == 1 else f"{float(amount * _MILLI):g}m"
