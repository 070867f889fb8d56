"""Parts that a file writes otherwise; hash.

Builds core.Policy from checked parts, in one canonical form: equal policies have equal hashes.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, is_dataclass, replace
from fractions import Fraction
from typing import Final

from webhook.core.model.amounts import ONE_GPU, UNLIMITED, GpuModel, Limit, PoolName, ResourceName, TeamName
from webhook.core.model.constraints import Operator, Requirement, Tier, Toleration
from webhook.core.model.demand import Shape, Weights
from webhook.core.model.gpu_shares import HAMI_SCHEDULER, SHARES
from webhook.core.model.policy import (
    OPERATOR_NAMESPACES,
    Defaults,
    Enforcement,
    LabelSelector,
    MigWeight,
    PlacementRules,
    PodPath,
    Policy,
    Pool,
    QueueRules,
    ReclaimCost,
    ReclaimRules,
    Share,
    Team,
    TopologyRules,
    UserKey,
    WorkloadKind,
    WorkloadRules,
)
from webhook.core.model.policy_addons import (
    DefragmentRules,
    IdleOverride,
    IdleRules,
    IdleTerms,
    NotifyRules,
    NotifyTarget,
    SecretHeader,
    SeriesLabels,
    UtilizationMetric,
    UtilizationSource,
    Window,
)
from webhook.policy import addons, schema, sections, teams
from webhook.policy.addons import Notify, Target
from webhook.policy.documents import Files, read_documents
from webhook.policy.field_errors import Tree
from webhook.policy.sections import Workloads, built_in
from webhook.policy.validate import Draft
from webhook.yaml_text import to_yaml

HASH_LENGTH: Final = 12


def build(draft: Draft) -> Policy:
    """Return the policy of a draft that has no problems. Lists whose order has no meaning are sorted."""
    defaults = draft.section("defaults", teams.Defaults())
    placement = draft.section("placement", schema.Placement())
    classes = draft.section("priorityClasses", schema.PriorityClasses())
    named = {Tier.GUARANTEED: classes.guaranteed, Tier.PREEMPTIBLE: classes.preemptible}
    weights = _weights(draft, defaults.mig)
    tree = Tree(draft.departments, draft.teams)
    policy = Policy(
        enforce=draft.section("enforce", schema.Enforce(Enforcement.ENFORCE)).root,
        teams=tuple(sorted((_team(team.value, tree) for team in draft.teams), key=lambda team: team.name)),
        departments=tree.all(),
        defaults=Defaults(
            on_limit=defaults.on_limit,
            on_no_room=defaults.on_no_room,
            unknown_team=defaults.unknown_team,
            unknown_gpu=defaults.unknown_gpu,
            device_access=defaults.device_access,
            host_paths=_unique(defaults.host_paths),
            user_from=tuple(UserKey(*key.place()) for key in defaults.user_from),
            share_schedulers=_share_schedulers(defaults.share_schedulers, draft),
            unknown_user=defaults.unknown_user,
            maximum_grace_seconds=defaults.maximum_grace_period,
            retry_refused=defaults.retry_refused,
        ),
        pools=tuple(sorted((_pool(pool.value) for pool in draft.pools), key=lambda pool: pool.name)),
        placement=_placement(placement),
        reclaim=_reclaim(draft.section("reclaim", schema.Reclaim()), defaults),
        defragment=_defragment(draft.section("defragment", schema.Defragment())),
        queue=_queue(draft.section("queue", schema.Queue())),
        topology=TopologyRules(tuple(draft.section("topology", schema.Topology()).levels)),
        idle=_idle(draft),
        resources={name: weight for name, weight in weights.items() if weight},
        ignored_resources=frozenset(name for name, weight in weights.items() if not weight),
        counts_replicas=any(resource.value.per_replica for resource in draft.resources.values()),
        priority_classes={tier: name for tier, name in named.items() if name is not None},
        exempt_namespaces=_unique(name.value for name in draft.exempt),
        operator_namespaces=_operator_namespaces(draft),
        workloads=_workloads(draft.section("workloads", Workloads())),
        notify=_notify(draft.section("notify", Notify())),
    )
    return replace(policy, hash=content_hash(policy))


def _operator_namespaces(draft: Draft) -> tuple[str, ...]:
    owned = {name for team in draft.teams for name in team.value.namespaces or ()}
    return tuple(name for name in OPERATOR_NAMESPACES if draft.exempts_operators and name not in owned)


def content_hash(policy: Policy) -> str:
    """Return the hash of a policy's content."""
    content = json.dumps(_plain(replace(policy, hash="")), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()[:HASH_LENGTH]


def _share_schedulers(named: list[str] | None, draft: Draft) -> tuple[str, ...]:
    """Return the schedulers that enforce shares; by default HAMi's own if the policy weighs HAMi's resources."""
    if named is not None:
        return _unique(named)
    return (HAMI_SCHEDULER,) if SHARES & draft.resources.keys() else ()


def _placement(spec: schema.Placement) -> PlacementRules:
    rules = PlacementRules(mode=spec.mode, pod_groups=spec.pod_groups, keep_whole=spec.keep_whole.nodes)
    weights: dict[Shape, int] = {}
    for item in spec.demand_mix:
        number, share = max(1, item.gpus // ONE_GPU), min(item.gpus, ONE_GPU)
        shape = Shape(number, share, ONE_GPU, item.cpu, item.memory)
        weights[shape] = weights.get(shape, 0) + item.weight
    return replace(rules, demand_mix=tuple(sorted(weights.items()))) if weights else rules


def _team(spec: teams.Team, tree: Tree) -> Team:
    return Team(
        name=TeamName(spec.name),
        namespaces=_unique(spec.namespaces),
        namespace_selector=None if spec.namespace_selector is None else _selector(spec.namespace_selector),
        gpus=_share(spec.gpus),
        models={GpuModel(model): _share(share) for model, share in sorted(spec.models.items())},
        per_pod=_cap(spec.per_pod),
        per_user=_cap(spec.per_user),
        weight=spec.weight,
        on_limit=spec.on_limit,
        on_no_room=spec.on_no_room,
        queue_depth=spec.queue_depth,
        departments=tree.above(spec.department),
        idle=_idle_of_team(spec.idle),
    )


def _pool(spec: schema.Pool) -> Pool:
    return Pool(
        name=PoolName(spec.name),
        node_selector=tuple(sorted(spec.node_selector.items())),
        affinity=_requirements(spec.affinity),
        tolerations=tuple(sorted({_toleration(toleration) for toleration in spec.tolerations}, key=repr)),
        capabilities=frozenset(spec.capabilities),
        teams=None if spec.teams is None else frozenset(TeamName(team) for team in spec.teams),
        match=None if spec.match is None else _selector(spec.match.pod_selector),
        is_autoscaled=spec.autoscaled,
    )


def _reclaim(spec: schema.Reclaim, defaults: teams.Defaults) -> ReclaimRules:
    protected = {_selector(item) for item in spec.protect if isinstance(item, sections.Selector)}
    return ReclaimRules(
        order=tuple(dict.fromkeys([*spec.order, *ReclaimCost])),
        evictions_per_minute=UNLIMITED if spec.max_evictions_per_minute is None else spec.max_evictions_per_minute,
        budget_seconds=spec.budgets,
        longest_grace_seconds=defaults.maximum_grace_period,
        notice_seconds=spec.notice,
        minimum_runtime_seconds=spec.minimum_runtime,
        protected_namespaces=_unique(item for item in spec.protect if isinstance(item, str)),
        protected_selectors=tuple(sorted(protected, key=repr)),
        start_within_seconds=spec.start_within,
    )


def _defragment(spec: schema.Defragment) -> DefragmentRules:
    return DefragmentRules(
        on_demand=spec.on_demand,
        window=None if spec.window is None else Window(*spec.window, spec.time_zone),
        moves_per_hour=spec.moves_per_hour,
        moves_per_workload=spec.moves_per_workload,
        lost_seconds_per_gpu=spec.lost_per_gpu,
        minimum_runtime_seconds=spec.minimum_runtime,
        notice_seconds=spec.notice,
    )


def _idle(draft: Draft) -> IdleRules | None:
    found = draft.sections.get("idle")
    if found is None:
        return None
    spec: addons.Idle = found.value
    metrics = tuple(UtilizationMetric(each.name, each.full, each.whole_gpus) for each in spec.metrics)
    labels, selectors_of = spec.labels, (each for each in spec.exempt if isinstance(each, sections.Selector))
    return IdleRules(
        UtilizationSource(
            url=spec.prometheus.url,
            series=tuple(sorted(spec.series.items())),
            metrics=metrics or addons.METRICS[spec.exporter],
            labels=SeriesLabels(tuple(labels.namespace), tuple(labels.pod), tuple(labels.gpu), tuple(labels.part)),
            interval_seconds=spec.interval,
            ca_file=spec.prometheus.ca_file or "",
            token_file=spec.prometheus.bearer_token_file or "",
        ),
        IdleTerms(spec.below, spec.for_, frozenset(spec.actions)),
        share_percent=spec.share,
        startup_seconds=spec.startup,
        notice_seconds=spec.notice,
        exempt_namespaces=_unique(each for each in spec.exempt if isinstance(each, str)),
        exempt_selectors=tuple(sorted({_selector(each).requirements for each in selectors_of}, key=repr)),
    )


def _idle_of_team(spec: addons.IdleOfTeam | None) -> IdleOverride | None:
    if spec is None:
        return None
    return IdleOverride(spec.below, spec.for_, None if spec.actions is None else frozenset(spec.actions))


def _queue(spec: schema.Queue) -> QueueRules:
    return QueueRules(
        depth=spec.depth,
        half_life_seconds=spec.half_life,
        strict_after_seconds=spec.strict_after,
        gang_timeout_seconds=spec.gang_timeout,
        hold_back_seconds=spec.hold_back,
    )


def _weights(draft: Draft, mig: MigWeight) -> Weights:
    """Return the built-in weights with the policy's own; weights of zero stay, so that their resources are known."""
    named = {ResourceName(name): resource.value.weight() for name, resource in draft.resources.items()}
    return dict(sorted({**built_in(mig), **named}.items()))


def _workloads(spec: Workloads) -> WorkloadRules:
    kinds = (
        WorkloadKind(
            group=kind.group,
            kind=kind.kind,
            resource=kind.resource,
            pods=tuple(
                PodPath(
                    pods.template or "",
                    tuple(pods.replicas),
                    role=pods.role,
                    each=pods.each or "",
                    default=pods.default,
                    resources=pods.resources or "",
                    counted=pods.resource,
                    maximum=pods.maximum or "",
                )
                for pods in kind.pods
            ),
            is_gang=kind.gang,
        )
        for kind in spec.kinds
    )
    in_order = tuple(sorted(kinds, key=lambda kind: (kind.group, kind.kind)))
    return WorkloadRules(on_limit=spec.on_limit, job_evictions=spec.job_evictions, kinds=in_order)


def _notify(spec: Notify) -> NotifyRules:
    return NotifyRules(
        targets=tuple(sorted(map(_target, spec.targets), key=lambda target: target.name)),
        cluster=spec.cluster,
        refusals=spec.refusals.above,
        refusals_within_seconds=spec.refusals.within,
        limit_share=Fraction(spec.limits.percent, 100),
    )


def _target(spec: Target) -> NotifyTarget:
    header = None
    if spec.token_file is not None:
        header = SecretHeader("Authorization", spec.token_file, "Bearer ")
    elif spec.header is not None:
        header = SecretHeader(spec.header.name, spec.header.file)
    return NotifyTarget(
        name=spec.name,
        url=spec.url or "",
        url_file=spec.url_file or "",
        template=spec.template,
        kinds=frozenset(spec.kinds),
        interval_seconds=spec.interval,
        repeat_seconds=spec.repeat,
        header=header,
        ca_file=spec.ca_file or "",
    )


def _share(spec: teams.Share) -> Share:
    return Share(guaranteed=spec.guaranteed, limit=spec.limit)


def _cap(spec: teams.Cap | None) -> Limit:
    return UNLIMITED if spec is None else spec.limit


def _selector(spec: sections.Selector) -> LabelSelector:
    labels = {Requirement(key, Operator.IN, (value,)) for key, value in spec.match_labels.items()}
    return LabelSelector(tuple(sorted(labels.union(_requirements(spec.match_expressions)), key=repr)))


def _requirements(specs: Iterable[sections.Expression]) -> tuple[Requirement, ...]:
    found = {Requirement(spec.key, spec.operator, _unique(spec.values)) for spec in specs}
    return tuple(sorted(found, key=repr))


def _toleration(spec: sections.Toleration) -> Toleration:
    return Toleration(key=spec.key or "", exists=spec.operator == "Exists", value=spec.value, effect=spec.effect)


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(texts)))


def _is_hashed(part: "Field[object]", value: object) -> bool:
    if not part.init:  # made from the others
        return False
    is_always = bool(part.metadata.get("is_hashed_by_default", True))
    return is_always or getattr(value, part.name) != part.default


def _hashed(part: "Field[object]", value: object) -> object:
    found, special = getattr(value, part.name), part.metadata.get("hashed_as")
    return special[found] if special is not None and found in special else _plain(found)


def _plain(value: object) -> object:
    """Return a policy as JSON values, with sorted mappings and sets."""
    if is_dataclass(value):
        return {f.name: _hashed(f, value) for f in fields(value) if _is_hashed(f, value)}
    if isinstance(value, Requirement | Toleration):  # with names, as always: replicas of two versions must agree
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Fraction):
        return str(value)
    return value.value if value is UNLIMITED else value


# The policy as text for viewers: every document without its comments, which may be confidential.


def published(files: Files) -> str:
    """Return the documents of a valid policy as one YAML text that loads as the same policy."""
    return to_yaml(*(document.value for document in read_documents(files).documents))
