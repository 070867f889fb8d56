"""Loads a policy folder as core.Policy, or raises all its problems."""

from dataclasses import replace
from pathlib import Path

from webhook.core.model.policy import Enforcement, Policy
from webhook.policy.build import build
from webhook.policy.document import read_documents
from webhook.policy.problems import PolicyError, Problem
from webhook.policy.source import Files, read_files
from webhook.policy.validate import Draft, check_documents


def load(path: Path) -> Policy:
    """Load a folder, or one file. Raises PolicyError with all problems, PolicyUnreadable if it cannot be read."""
    return parse(read_files(path), origin=str(path))


def parse(files: Files, *, origin: str) -> Policy:
    """Return the policy of file contents; problems without a file name `origin`. Raises PolicyError."""
    return build(read_draft(files, origin=origin))


def with_enforcement(policy: Policy, *, enforce: Enforcement | None) -> Policy:
    """Return the policy with its enforcement replaced; None leaves it."""
    return policy if enforce is None else replace(policy, enforce=enforce)


def read_draft(files: Files, *, origin: str) -> Draft:
    """Parse and check file contents; the draft has no problems, and knows file and line of its parts.

    Raises PolicyError.
    """
    if not files:
        raise PolicyError((Problem(origin, 0, "", "no policy files: expected at least one *.yaml or *.yml here"),))
    parsed = read_documents(files)
    draft = check_documents(parsed.documents, is_complete=not parsed.problems)
    problems = {*parsed.problems, *draft.problems}
    if not problems and not parsed.documents:
        problems.add(Problem(origin, 0, "", "no policy in these files: every document is empty"))
    if problems:
        raise PolicyError(tuple(sorted(problems, key=lambda p: (p.file, p.line, p.path, p.message))))
    return draft
