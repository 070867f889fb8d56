"""The effect of a pod's eviction on the object that controls it, by the rules of each controller.

docs/tasks/workloads.md has the table, with the reasons.
"""

from sys import intern
from typing import Final

import msgspec

from webhook.core.reclaim.victims import FailureBudget, WorkloadId
from webhook.kube.objects import objects

DISRUPTION: Final = "DisruptionTarget"
"""The pod condition that the Eviction API sets."""

_DEFAULT_BACKOFF_LIMIT: Final = 6
_EVICTED_EXIT_CODES: Final = (137, 143)
"""SIGKILL and SIGTERM: the exit codes of most processes that do not handle them."""

_MAX_UID: Final = 64
"""Characters; a UID has 36."""

_MAX_INDEXES: Final = 100_000
"""The API server accepts no larger maxFailedIndexes."""


class ExitCodes(msgspec.Struct, frozen=True, gc=False):
    """The exit codes that a rule matches."""

    operator: str = ""
    values: list[int] = []

    def covers(self, code: int) -> bool:
        """Whether a container with this exit code matches."""
        return (code in self.values) == (self.operator == "In")


class ConditionPattern(msgspec.Struct, frozen=True, gc=False):
    """A pod condition that a rule matches."""

    type: str
    status: str = "True"


class Rule(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A rule of a podFailurePolicy; the first that matches applies."""

    action: str
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: list[ConditionPattern] | None = None

    @property
    def is_about_evictions(self) -> bool:
        """Whether it matches the condition of evicted pods."""
        return any(each.type == DISRUPTION and each.status == "True" for each in self.on_pod_conditions or ())


class PodFailurePolicy(msgspec.Struct, frozen=True, gc=False):
    """A Job's podFailurePolicy."""

    rules: list[Rule] = []


class _JobSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None


class _Uncounted(msgspec.Struct, frozen=True, gc=False):
    failed: list[str] | None = None


class _JobStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    failed: int | None = None
    failed_indexes: str | None = None
    uncounted_terminated_pods: _Uncounted | None = None


class Job(msgspec.Struct, frozen=True, gc=False):
    """The fields of a batch/v1 Job that concern failures."""

    metadata: objects.ObjectMeta
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


class _Replica(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    restart_policy: str = ""


class _RunPolicy(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    backoff_limit: int | None = None


_Roles = dict[str, _Replica] | None


class _TrainingSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    run_policy: _RunPolicy | None = None
    pytorch_replica_specs: _Roles = None
    paddle_replica_specs: _Roles = None
    tf_replica_specs: _Roles = None
    xgb_replica_specs: _Roles = None
    jax_replica_specs: _Roles = None
    mx_replica_specs: _Roles = None


class TrainingJob(msgspec.Struct, frozen=True, gc=False):
    """A job of the Kubeflow training operator, of any kind except MPIJob."""

    metadata: objects.ObjectMeta
    spec: _TrainingSpec = _TrainingSpec()


def workload_id(namespace: str, uid: str) -> WorkloadId | None:
    """Return the ID of a pod's controller; None if `uid` is not a UID: tenants may write any text there."""
    return WorkloadId(intern(f"{namespace}/{uid}")) if 0 < len(uid) <= _MAX_UID else None


def job_budget(job: Job) -> FailureBudget | None:
    """Return how many evictions a Job survives; None: any number."""
    spec, status = job.spec, job.status
    action = action_on_eviction(spec.pod_failure_policy)
    if action == "Ignore":
        return None
    if action == "FailJob":
        return FailureBudget(0)
    uncounted = status.uncounted_terminated_pods
    failed = (status.failed or 0) + len((uncounted.failed if uncounted is not None else None) or ())
    if spec.backoff_limit_per_index is None:
        limit = _DEFAULT_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit
        return FailureBudget(limit, failed)
    found = [] if spec.backoff_limit is None else [FailureBudget(spec.backoff_limit, failed)]
    if spec.max_failed_indexes is not None:
        found.append(FailureBudget(spec.max_failed_indexes, _count_indexes(status.failed_indexes or "")))
    return min(found, key=lambda budget: budget.limit - budget.failed, default=None)


def action_on_eviction(policy: PodFailurePolicy | None) -> str:
    """Return the action of a podFailurePolicy for an evicted pod: Ignore, Count, FailIndex or FailJob."""
    for rule in policy.rules if policy is not None else ():
        codes = rule.on_exit_codes
        if codes is not None and rule.action != "Ignore" and any(map(codes.covers, _EVICTED_EXIT_CODES)):
            return rule.action
        if rule.is_about_evictions:
            return rule.action
    return "Count"


def training_budget(job: TrainingJob) -> FailureBudget | None:
    """Return a budget of 0 if a training job fails with its first eviction; None: it survives any number.

    The operator counts only container restarts, so evictions never count toward other backoffLimits.
    """
    spec = job.spec
    if spec.run_policy is not None and spec.run_policy.backoff_limit == 0:
        return FailureBudget(0)
    restarting = (spec.pytorch_replica_specs, spec.paddle_replica_specs)
    failing = (spec.tf_replica_specs, spec.xgb_replica_specs, spec.jax_replica_specs, spec.mx_replica_specs)
    for specs, default in (*((each, "OnFailure") for each in restarting), *((each, "Never") for each in failing)):
        if any((replica.restart_policy or default) == "Never" for replica in (specs or {}).values()):
            return FailureBudget(0)
    return None


def _count_indexes(text: str) -> int:
    """Count the indexes of a list such as 1,3-5,7."""
    count = 0
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(part) < len(str(_MAX_INDEXES)) * 2 + 2:
            count += max(0, int(last or first) - int(first) + 1)
    return count
