"""The team of a namespace, exemption, and the user behind a pod."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

from webhook.core.model.names import Namespace, TeamName, User
from webhook.core.model.pod import NamespaceFacts, Pod, Requester
from webhook.core.model.policy import Policy, Team
from webhook.core.model.reason import Code, Reason
from webhook.core.model.user_rules import UnknownUser, UserSource

EXEMPT_LABEL: Final = "fairgate.dev/exempt"

HIDDEN: Final = "*"
"""Begins the name of a namespace that stands for those of a team which the reader may not read; no real one has it."""

LONGEST_USER: Final = 253
"""Characters of a user's name that count: labels and annotations may be longer, and every charge carries it."""


def hidden_namespace(team: TeamName) -> Namespace:
    """Return the namespace that stands for those of a team which the reader may not read."""
    return Namespace(f"{HIDDEN}{team}")


def is_hidden(namespace: Namespace) -> bool:
    """Whether a namespace stands for others that the reader may not read."""
    return namespace.startswith(HIDDEN)


def team_of(namespace: NamespaceFacts, policy: Policy) -> Team | None:
    """Return the team of a namespace: an exact name beats a glob, a glob beats a selector, then policy order."""
    if is_hidden(namespace.name):
        return policy.team(TeamName(namespace.name.removeprefix(HIDDEN)))
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
    """Whether Fairgate leaves the pods of this namespace alone (they are counted all the same)."""
    return namespace.labels.get(EXEMPT_LABEL, "false") != "false" or any(
        fnmatchcase(namespace.name, glob) for glob in policy.exempt if not is_hidden(namespace.name)
    )


def is_exempt_by_default(namespace: NamespaceFacts, policy: Policy) -> bool:
    """Whether nothing exempts this namespace but that it has the name of a device operator's."""
    if namespace.name not in policy.operator_namespaces or namespace.labels.get(EXEMPT_LABEL, "false") != "false":
        return False
    return not any(fnmatchcase(namespace.name, glob) for glob in policy.exempt_namespaces)


def exempt_reason(namespace: NamespaceFacts, policy: Policy) -> Reason:
    """Return why the pods of an exempt namespace are only counted."""
    words = (
        "namespace {namespace} is exempt by default, as a device operator's (exempt.operators): only counted"
        if is_exempt_by_default(namespace, policy)
        else "namespace {namespace} is exempt: only counted"
    )
    return Reason(Code.EXEMPT, words, {"namespace": namespace.name})


def user_of(
    pod: Pod, requester: Requester, namespace: NamespaceFacts, policy: Policy, *, home: NamespaceFacts | None = None
) -> User | None:
    """Return the user behind a pod, or None: a guess would charge the wrong person.

    A person is charged directly, even if the pod names an owner. A controller acts through its service account, so its
    pods belong to the user named by policy's `userFrom`. `home` is the namespace of a service account that a team's own
    users can create: it counts as the owner of that namespace, and all service accounts of a namespace as one user
    where none is named. Otherwise they would multiply the limit.
    """
    if not requester.is_service_account:
        return User(requester.username[:LONGEST_USER]) if requester.username else None
    for key in policy.defaults.user_from:
        if user := _values(key.source, pod, home or namespace).get(key.key):
            return User(user[:LONGEST_USER])
    if home is not None or pod.owner is None:
        return User(f"system:serviceaccounts:{requester.home}")
    if policy.defaults.unknown_user is UnknownUser.NAMESPACE:
        return User(f"system:serviceaccounts:{namespace.name}")
    return None


_OF_NAMESPACE = (UserSource.NAMESPACE_ANNOTATION, UserSource.NAMESPACE_LABEL)
_ANNOTATIONS = (UserSource.NAMESPACE_ANNOTATION, UserSource.POD_ANNOTATION)


def _values(source: UserSource, pod: Pod, namespace: NamespaceFacts) -> Mapping[str, str]:
    of = namespace if source in _OF_NAMESPACE else pod
    return of.annotations if source in _ANNOTATIONS else of.labels


def unknown_namespace(name: Namespace) -> NamespaceFacts:
    """Return a namespace that the world has not seen (yet): a name, no labels, no annotations."""
    return NamespaceFacts(name)
