"""A department's usage: the sums of all teams below it, kept by the same events as theirs.

Each team's usage knows the departments above it (`TeamUsage.levels`), so a charge costs one addition per level, and a
decision reads one sum per level. No team is ever scanned.
"""

from webhook.core.model.amount import Units
from webhook.core.model.decision import Charge
from webhook.core.model.names import ANY_MODEL, GpuModel
from webhook.core.model.policy import Department
from webhook.core.quota.holders import Holder, Holders
from webhook.core.quota.kept_room import KeptRoom


class DepartmentUsage:
    """The sums of the teams below one department, in GPU units."""

    __slots__ = (
        "_by_model",
        "_guaranteed_by_model",
        "_teams",
        "changes",
        "department",
        "guaranteed",
        "kept",
        "lingered",
        "lingering",
        "reserved",
        "waiting",
    )

    def __init__(self, department: Department) -> None:
        self.department = department
        self._teams = Holders()
        self._by_model: dict[GpuModel, Holders] = {}
        self._guaranteed_by_model: dict[GpuModel, Units] = {}
        self.kept = KeptRoom()
        self.changes = 0  # how often a charge was added or subtracted
        self.reserved: Units = 0
        self.guaranteed: Units = 0
        self.waiting: Units = 0
        self.lingering: Units = 0
        self.lingered: Units = 0  # the same, with those of teams whose charges ended a moment ago

    @property
    def total(self) -> Units:
        """The units of all pods."""
        return self._teams.total

    @property
    def preemptible(self) -> Units:
        """The units of pods that may be evicted."""
        return self.total - self.guaranteed

    def model(self, model: GpuModel) -> Units:
        """Return the units charged to one GPU model, and those that may still end on it."""
        return sum(held.total for held in self._on(model))

    def guaranteed_model(self, model: GpuModel) -> Units:
        """Return the guaranteed units charged to one GPU model."""
        return self._guaranteed_by_model.get(model, 0)

    def change(
        self,
        charge: Charge,
        gpus: Units,
        *,
        is_reserved: bool,
        is_waiting: bool,
        is_guaranteed: bool,
        is_lingering: bool = False,
    ) -> None:
        """Add a charge of a team, or (negative `gpus`) subtract it."""
        self.changes += 1
        self._teams.change(charge.team, gpus)
        if charge.model is not None:
            held = self._by_model.get(charge.model)
            if held is None:
                held = self._by_model[charge.model] = Holders()
            held.change(charge.team, gpus)
            if not len(held):
                del self._by_model[charge.model]
        if is_reserved:
            self.reserved += gpus
        if is_lingering:
            self.lingering += gpus
        if is_waiting:
            self.waiting += gpus
        if is_guaranteed:
            self.guaranteed += gpus
            if charge.model is not None:
                self._guaranteed_by_model[charge.model] = self._guaranteed_by_model.get(charge.model, 0) + gpus

    def largest(self, count: int, *, model: GpuModel | None = None) -> list[Holder]:
        """Return the teams that hold most, in total or of one model, the largest first, ties by name."""
        kinds = [self._teams] if model is None else self._on(model)
        names = {name for held in kinds for name, _ in held.largest(count)}
        sums = sorted((-sum(held.of(name) for held in kinds), name) for name in names)
        return [Holder(f"team {name}", -gpus) for gpus, name in sums[:count]]

    def _on(self, model: GpuModel) -> list[Holders]:
        keys = dict.fromkeys((model, ANY_MODEL))
        return [held for key in keys if (held := self._by_model.get(key)) is not None]
