"""Whose pod is it: team of a namespace, exemption, and the user behind a pod."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

from webhook.core.names import Namespace, User
from webhook.core.pod import NamespaceFacts, Pod, Requester
from webhook.core.policy import Policy, Team, UserSource

EXEMPT_LABEL: Final = "fairgate.dev/exempt"


def team_of(namespace: NamespaceFacts, policy: Policy) -> Team | None:
    """Find the team that owns a namespace: an exact name beats a glob, a glob beats a selector, then policy order."""
    for team in policy.teams:
        if namespace.name in team.namespaces:
            return team
    for team in policy.teams:
        if any(fnmatchcase(namespace.name, glob) for glob in team.namespaces):
            return team
    for team in policy.teams:
        if team.namespace_selector is not None and team.namespace_selector.matches(namespace.labels):
            return team
    return None


def is_exempt(namespace: NamespaceFacts, policy: Policy) -> bool:
    """Tell whether Fairgate leaves the pods of this namespace alone (they are counted all the same)."""
    return namespace.labels.get(EXEMPT_LABEL, "false") != "false" or any(
        fnmatchcase(namespace.name, glob) for glob in policy.exempt_namespaces
    )


def user_of(pod: Pod, requester: Requester, namespace: NamespaceFacts, policy: Policy) -> User | None:
    """Name the user behind a pod, or None: a guess would charge the wrong person.

    A controller acts through its service account, so a pod it made belongs to whom policy's `userFrom` names; any
    other pod belongs to its requester. A person cannot hide behind a forged ownerReference: only service accounts
    are taken for controllers.
    """
    if pod.owner is None or not requester.is_service_account:
        return User(requester.username) if requester.username else None
    for key in policy.defaults.user_from:
        if user := _places(key.source, pod, namespace).get(key.key):
            return User(user)
    return None


_OF_NAMESPACE = (UserSource.NAMESPACE_ANNOTATION, UserSource.NAMESPACE_LABEL)
_ANNOTATIONS = (UserSource.NAMESPACE_ANNOTATION, UserSource.POD_ANNOTATION)


def _places(source: UserSource, pod: Pod, namespace: NamespaceFacts) -> Mapping[str, str]:
    of = namespace if source in _OF_NAMESPACE else pod
    return of.annotations if source in _ANNOTATIONS else of.labels


def unknown_namespace(name: Namespace) -> NamespaceFacts:
    """Stand in for a namespace that the world has not seen (yet): a name, no labels, no annotations."""
    return NamespaceFacts(name)
