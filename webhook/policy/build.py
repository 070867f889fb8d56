"""Checked parts to core.Policy, in one canonical form: the same meaning gives the same policy and the same hash."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Final

from webhook.core.amount import UNLIMITED, Limit
from webhook.core.names import GpuModel, PoolName, ResourceName, TeamName
from webhook.core.policy import (
    Defaults,
    LabelSelector,
    PlacementRules,
    Policy,
    Pool,
    ReclaimCost,
    ReclaimRules,
    Share,
    Team,
    UserKey,
)
from webhook.core.selector import Operator, Requirement, Toleration
from webhook.core.tier import Tier
from webhook.policy import schema
from webhook.policy.builtin import BUILT_IN
from webhook.policy.validate import Draft

HASH_LENGTH: Final = 12


def build(draft: Draft) -> Policy:
    """Turn a draft without problems into the policy. Lists without an order of their own are sorted."""
    defaults = draft.section("defaults", schema.Defaults())
    placement = draft.section("placement", schema.Placement())
    classes = draft.section("priorityClasses", schema.PriorityClasses())
    named = {Tier.GUARANTEED: classes.guaranteed, Tier.PREEMPTIBLE: classes.preemptible}
    policy = Policy(
        teams=tuple(sorted((_team(team.value) for team in draft.teams), key=lambda team: team.name)),
        defaults=Defaults(
            unknown_team=defaults.unknown_team, user_from=tuple(UserKey(*key.place()) for key in defaults.user_from)
        ),
        pools=tuple(sorted((_pool(pool.value) for pool in draft.pools), key=lambda pool: pool.name)),
        placement=PlacementRules(mode=placement.mode, keep_whole=placement.keep_whole.nodes),
        reclaim=_reclaim(draft.section("reclaim", schema.Reclaim())),
        resources=_resources(draft),
        priority_classes={tier: name for tier, name in named.items() if name is not None},
        exempt_namespaces=_unique(name.value for name in draft.exempt),
    )
    return replace(policy, hash=content_hash(policy))


def content_hash(policy: Policy) -> str:
    """Name a policy's content."""
    content = json.dumps(_plain(replace(policy, hash="")), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()[:HASH_LENGTH]


def _team(spec: schema.Team) -> Team:
    return Team(
        name=TeamName(spec.name),
        namespaces=_unique(spec.namespaces),
        namespace_selector=None if spec.namespace_selector is None else _selector(spec.namespace_selector),
        gpus=_share(spec.gpus),
        models={GpuModel(model): _share(share) for model, share in sorted(spec.models.items())},
        per_pod=_cap(spec.per_pod),
        per_user=_cap(spec.per_user),
        on_limit=spec.on_limit,
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
    )


def _reclaim(spec: schema.Reclaim) -> ReclaimRules:
    selectors = {_selector(item) for item in spec.protect if isinstance(item, schema.Selector)}
    return ReclaimRules(
        order=tuple(dict.fromkeys([*spec.order, *ReclaimCost])),
        evictions_per_minute=UNLIMITED if spec.max_evictions_per_minute is None else spec.max_evictions_per_minute,
        notice_seconds=spec.notice,
        minimum_runtime_seconds=spec.minimum_runtime,
        protected_namespaces=_unique(item for item in spec.protect if isinstance(item, str)),
        protected_selectors=tuple(sorted(selectors, key=repr)),
    )


def _resources(draft: Draft) -> dict[ResourceName, int]:
    """Override the built-in weights; a resource that counts nothing is none of Fairgate's business."""
    named = {ResourceName(name): resource.value.gpus for name, resource in draft.resources.items()}
    return {name: weight for name, weight in sorted({**BUILT_IN, **named}.items()) if weight}


def _share(spec: schema.Share) -> Share:
    return Share(guaranteed=spec.guaranteed, limit=spec.limit)


def _cap(spec: schema.Cap | None) -> Limit:
    return UNLIMITED if spec is None else spec.limit


def _selector(spec: schema.Selector) -> LabelSelector:
    labels = {Requirement(key, Operator.IN, (value,)) for key, value in spec.match_labels.items()}
    return LabelSelector(tuple(sorted(labels.union(_requirements(spec.match_expressions)), key=repr)))


def _requirements(specs: Iterable[schema.Expression]) -> tuple[Requirement, ...]:
    made = {Requirement(spec.key, spec.operator, _unique(spec.values)) for spec in specs}
    return tuple(sorted(made, key=repr))


def _toleration(spec: schema.Toleration) -> Toleration:
    return Toleration(key=spec.key or "", exists=spec.operator == "Exists", value=spec.value, effect=spec.effect)


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(texts)))


def _plain(value: object) -> object:
    """Turn a policy into JSON values, mappings and sets in order."""
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.value if value is UNLIMITED else value
