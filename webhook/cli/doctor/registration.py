"""Checks of the API server and the registration there: version, webhooks, guards, certificates, a reachable server."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Final

from cryptography import x509

from certs.authority import (
    CertificateError,
    is_issued_by,
    names_missing,
    read_certificates,
    why_not_renewed,
    why_unusable,
)
from webhook.cli.doctor.checks import Check, Finding, Process, missing_right, ok, skipped, unknown, wrong
from webhook.cluster.reads.installation import ReadForbidden, ReadResult, ReadValue
from webhook.core.model.amounts import UNASSIGNED, Namespace, plural, printable
from webhook.core.model.policy import Enforcement, Policy
from webhook.kube.objects import keys
from webhook.kube.objects.keys import ServerVersion, why_too_old
from webhook.kube.registration import inventory
from webhook.kube.registration.guards import PARAMETRIC
from webhook.kube.registration.inventory import GUARD, Probe, ProbeOutcome, WebhookEndpoint, excluding_keys

_APPLY: Final = "apply what `fairgate manifests` prints, or `helm upgrade`; docs/reference/guards.md#the-webhooks"
_NOT_COMPARED: Final = "not compared with the policy"
_IN_STEP: Final = "up to date with the policy"
_WRITE: Final = (
    "write them again by `fairgate manifests --static`, for every API server; docs/tasks/registration-files.md"
)
_ONCE: Final = "delete the objects or remove the files; docs/tasks/registration-files.md"
_UNDEFINED: Final = (
    f"the definition {keys.HELD_NODES}.{keys.OWN_GROUP} is missing: the guards of reserved nodes allow everything"
)
_NAMED: Final = 5
"""Namespaces of a team that a finding names."""

_Json = dict[str, Any]


def check_kubernetes(version: ServerVersion | None) -> list[Finding]:
    """Check that the API server is not too old."""
    check = Check.KUBERNETES
    if version is None:
        text = "not checked: the API server's version cannot be read"
        return unknown(check, text, "the ClusterRole system:public-info-viewer grants it")
    if why := why_too_old(version):
        return wrong(check, [why], "docs/reference/versions.md")
    return ok(check, str(version))


def check_webhooks(
    found: Mapping[str, ReadResult[_Json]],
    namespaces: ReadResult[list[_Json]],
    policy: Policy | None,
    servers: Iterable[Process],
    *,
    is_static: bool = False,
    files: list[_Json] | None = None,
) -> list[Finding]:
    """Check that the webhook configurations exist, match the policy, and select the namespaces of every team.

    Where namespaces may not be listed, the leader among the servers says how many they leave out, and names none.
    `is_static`: the API server has them from files, too. `files` is what those register; without it they are not
    compared.
    """
    check = Check.WEBHOOKS
    unread = [part.right for part in found.values() if isinstance(part, ReadForbidden)]
    if unread:
        return missing_right(check, " and ".join(dict.fromkeys(unread)), role=keys.VIEWER)
    if policy is None:
        return unknown(check, "not checked: the policy is unknown", "see the check `policy`, or give --policy DIR")
    existing = {name: part.value for name, part in found.items() if isinstance(part, ReadValue)}
    if is_static or files is not None:
        named = " and ".join(name for name, each in existing.items() if each is not None)
        twice = [f"the API server has the webhooks from files, and {named} besides: each pod is reviewed twice"]
        problems = [] if files is None else inventory.registration_problems(policy, _by_name(files, existing))
        text = f"from files of the API server, {_NOT_COMPARED if files is None else _IN_STEP}"
        return [*wrong(check, twice if named else [], _ONCE), *_of_files(check, problems)] or ok(check, text)
    if different := wrong(check, inventory.registration_problems(policy, existing), _APPLY):
        return different
    if policy.enforce is Enforcement.OFF:
        return skipped(check, "the policy is off, and nothing is registered")
    present = [each for each in existing.values() if each is not None]
    text = f"{plural(sum(len(each['webhooks']) for each in present), 'webhook')}, {_IN_STEP}"
    labels = ", ".join(excluding_keys(present))
    if not labels:
        return ok(check, text)
    text += f"; others exclude namespaces by {labels}"
    why = f"are not reviewed, as others exclude these by labels {labels}"
    if isinstance(namespaces, ReadForbidden):
        leaders = [each.report for each in servers if each.report.leading]
        if not leaders:
            return missing_right(check, namespaces.right, role="view")
        problems = [f"pods in {counted} {why}" for report in leaders for counted in report.unreviewed]
    else:
        world = inventory.world_of_namespaces(policy, namespaces.value or [])
        left_out = inventory.unreviewed_namespaces(present, world)
        if of_no_team := left_out.pop(UNASSIGNED, []):
            text += f", of no team {_named(of_no_team)}"
        problems = [
            f"pods in {plural(len(names), 'namespace')} of team {team} {why}: {_named(names)}"
            for team, names in left_out.items()
        ]
    remedy = "remove the label from the namespaces, or have the control plane leave the webhooks alone"
    return wrong(check, problems, remedy) or ok(check, text)


def _by_name(files: Iterable[_Json], names: Iterable[str]) -> dict[str, _Json | None]:
    found = {each["metadata"]["name"]: each for each in files if "webhooks" in each}
    return {name: found.get(name) for name in names}


def _of_files(check: Check, problems: Iterable[str]) -> list[Finding]:
    return wrong(check, [f"in the files of the API server: {each}" for each in problems], _WRITE)


def _named(names: list[Namespace]) -> str:
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def check_guards(
    found: Mapping[tuple[str, str], ReadResult[_Json]],
    configurations: Mapping[str, ReadResult[_Json]],
    policy: Policy | None,
    *,
    served: ReadResult[frozenset[str]],
    is_static: bool = False,
    files: list[_Json] | None = None,
) -> list[Finding]:
    """Check that the ValidatingAdmissionPolicies exist and match the policy; `is_static` and `files` as of webhooks.

    `served` are the resources that are defined of Fairgate's API: three guards read one of them.
    """
    check = Check.GUARDS
    if policy is None:
        return unknown(check, "not checked: the policy is unknown", "see the check `policy`, or give --policy DIR")
    wanted = inventory.wanted_guards(policy)
    is_static = is_static or files is not None
    by_files = [key for key in wanted if key[1] not in PARAMETRIC] if is_static else []
    twice = sorted(key[1] for key in by_files if key[0] == GUARD and _exists(found[key]))
    wanted = [key for key in wanted if key not in by_files]
    if not wanted:
        return skipped(check, "the policy is off")
    parts = {key: found[key] for key in wanted}
    if unread := [part.right for part in parts.values() if isinstance(part, ReadForbidden)]:
        return missing_right(check, " and ".join(dict.fromkeys(unread)), role=keys.VIEWER)
    existing = {key: part.value for key, part in parts.items() if isinstance(part, ReadValue)}
    if all(value is None for value in existing.values()):
        text = "no guard is installed: users can forge what Fairgate writes"
        return wrong(check, [text], f"{_APPLY}; if you left them out on purpose, --skip guards")
    registered = [part.value for part in configurations.values() if isinstance(part, ReadValue) and part.value]
    problems = wrong(check, inventory.guard_problems(policy, existing, registered, by_files=by_files), _APPLY)
    both = [f"the API server has {', '.join(twice)} from files, and as objects besides"] if twice else []
    if isinstance(served, ReadValue) and keys.HELD_NODES not in (served.value or ()):
        problems += wrong(check, [_UNDEFINED], _APPLY)
    if files is not None:
        there = {(each["kind"], each["metadata"]["name"]): each for each in files}
        problems += _of_files(check, inventory.guard_problems(policy, there, by_files=wanted))
    others = f"; the others from files of the API server, {_NOT_COMPARED if files is None else _IN_STEP}"
    text = f"{plural(len(wanted) // 2, 'guard')}, {_IN_STEP}{others if by_files else ''}"
    return [*problems, *wrong(check, both, _ONCE)] or ok(check, text)


def _exists(part: ReadResult[_Json]) -> bool:
    return isinstance(part, ReadValue) and part.value is not None


def check_certificates(
    servers: Iterable[Process],
    configurations: Mapping[str, ReadResult[_Json]],
    *,
    now: float,
    files: Iterable[_Json] | None = None,
) -> list[Finding]:
    """Check that every server's certificate is valid, has the host that is called, and is trusted by every webhook.

    Webhooks of files without a caBundle are left out: there the API server's host trusts the certificate.
    """
    check, moment = Check.CERTIFICATES, datetime.fromtimestamp(now, UTC)
    findings: list[Finding] = []
    chains: dict[str, list[x509.Certificate]] = {}
    for each in servers:
        try:
            chains[each.name] = read_certificates(each.report.certificate.encode(), name="its report")
        except CertificateError as error:
            findings += unknown(check, f"the certificate of {each.name} is unknown: {error}", "see its log")
    for name, chain in chains.items():
        findings += _validity(name, chain[0], moment)
    unread = [part.right for part in configurations.values() if isinstance(part, ReadForbidden)]
    if unread:
        findings += missing_right(check, " and ".join(dict.fromkeys(unread)), role=keys.VIEWER)
    registered = [part.value for part in configurations.values() if isinstance(part, ReadValue) and part.value]
    callers = [each for found in registered for each in inventory.webhook_endpoints(found)]
    callers += [each for found in files or () for each in inventory.webhook_endpoints(found) if each.ca_bundle]
    findings += _trust(chains, callers)
    if not chains and not findings:
        return unknown(check, "not checked: no server reports its certificate", "see the check `server`")
    return findings or ok(check, f"{_until(chains)}{', trusted by every webhook' if callers else ''}")


def _validity(name: str, leaf: x509.Certificate, moment: datetime) -> list[Finding]:
    check = Check.CERTIFICATES
    if why := why_unusable(leaf, moment, name=f"the certificate of {name}"):
        return wrong(check, [why], "see docs/tasks/certificates.md: renewal failed, or a clock is wrong")
    why = why_not_renewed(leaf, moment, name=f"the certificate of {name}")
    return wrong(check, filter(None, [why]), "its log says why it is not renewed (`certificate kept`)")


def _trust(chains: Mapping[str, list[x509.Certificate]], callers: Iterable[WebhookEndpoint]) -> list[Finding]:
    """Check every chain for every caller; a problem of several webhooks is reported once."""
    check = Check.CERTIFICATES
    problems: dict[str, list[str]] = {}
    for caller in callers:
        for name, chain in chains.items():
            if problem := _why_distrusted(name, chain, caller):
                problems.setdefault(problem, []).append(caller.webhook)
    return [
        finding
        for problem, webhooks in problems.items()
        for finding in wrong(
            check,
            [f"{problem} ({', '.join(webhooks)})"],
            "with --certs-secret the servers write the caBundle: see their rights; else `fairgate manifests --ca`",
        )
    ]


def _why_distrusted(name: str, chain: list[x509.Certificate], caller: WebhookEndpoint) -> str | None:
    if caller.host and names_missing(chain[0], [caller.host]) and not _has_wildcard(chain[0], caller.host):
        return f"the certificate of {name} is not valid for {caller.host}, which the API server calls"
    if not caller.ca_bundle.strip():
        return "caBundle is empty: the API server does not trust a generated certificate"
    try:
        trusted = read_certificates(caller.ca_bundle, name="caBundle")
    except CertificateError as error:
        return f"the caBundle cannot be read: {error}"
    if any(is_issued_by(each, ca) or each == ca for each in chain for ca in trusted):
        return None
    return f"the caBundle has no CA that issued the certificate of {name}"


def _has_wildcard(leaf: x509.Certificate, host: str) -> bool:
    return not names_missing(leaf, [f"*.{host.partition('.')[2]}"])


def _until(chains: Mapping[str, list[x509.Certificate]]) -> str:
    first = min(chain[0].not_valid_after_utc for chain in chains.values())
    return f"valid until {first:%Y-%m-%d %H:%M} UTC"


def check_reachable(
    found: Probe | ReadForbidden | None, policy: Policy | None, *, namespace: str, is_exempt: bool
) -> list[Finding]:
    """Check by a dry run that the API server reaches a server."""
    check = Check.REACHABLE
    if policy is None or found is None:
        return unknown(check, "not checked: the policy is unknown", "see the check `policy`, or give --policy DIR")
    if isinstance(found, ReadForbidden):
        text = f"not checked: a dry run needs the right to {found.right}"
        return unknown(check, text, "give a namespace in which you may create pods by --namespace")
    match found.reached:
        case ProbeOutcome.YES:
            called = f"the API server called Fairgate for a pod in namespace {namespace} (a dry run)"
            return ok(check, f"{called}: {printable(found.text)}" if found.text else called)
        case ProbeOutcome.FAILED:
            remedy = "see the checks `server` and `certificates`, and check that network policies allow the API server"
            return wrong(check, [f"the API server cannot reach Fairgate: {found.text}"], remedy)
        case ProbeOutcome.UNKNOWN:
            return unknown(
                check, f"not checked: the dry run did not get to Fairgate: {found.text}", "try another --namespace"
            )
        case ProbeOutcome.NOT_CALLED:
            return _not_called(found, policy, namespace=namespace, is_exempt=is_exempt)


def _not_called(found: Probe, policy: Policy, *, namespace: str, is_exempt: bool) -> list[Finding]:
    check = Check.REACHABLE
    if not policy.is_enforced:
        return skipped(check, f"a dry run shows nothing while enforce is {policy.enforce.value}")
    system = {keys.SYSTEM_NAMESPACE, keys.OWN_NAMESPACE}
    if is_exempt or namespace in system or any(fnmatchcase(namespace, each) for each in policy.exempt):
        return unknown(check, f"not checked: namespace {namespace} is exempt", "give another one by --namespace")
    return wrong(check, [f"{found.text} in namespace {namespace}"], "see the check `webhooks`")
