"""A policy folder to core.Policy, or every reason why not."""

from dataclasses import replace
from pathlib import Path

from webhook.core.model.policy import Enforcement, Policy
from webhook.policy.build import build
from webhook.policy.document import read_documents
from webhook.policy.problems import PolicyError, Problem
from webhook.policy.source import Files, read_files
from webhook.policy.validate import Draft, draft


def load(path: Path) -> Policy:
    """Load the folder, or the one file. Raises PolicyError with all problems, PolicyUnreadable if it cannot be read."""
    return parse(read_files(path), origin=str(path))


def parse(files: Files, *, origin: str) -> Policy:
    """Make a policy of file contents read before; `origin` is named where no file can be. Raises PolicyError."""
    return build(drafted(files, origin=origin))


def overridden(policy: Policy, *, enforce: Enforcement | None) -> Policy:
    """Let somebody else than the policy say how far Fairgate goes; None: nobody does."""
    return policy if enforce is None else replace(policy, enforce=enforce)


def drafted(files: Files, *, origin: str) -> Draft:
    """Read and check file contents; what comes out has no problem, and knows its places. Raises PolicyError."""
    if not files:
        raise PolicyError((Problem(origin, 0, "", "no policy files: expected at least one *.yaml or *.yml here"),))
    reading = read_documents(files)
    made = draft(reading.documents, is_complete=not reading.problems)
    problems = {*reading.problems, *made.problems}
    if not problems and not reading.documents:
        problems.add(Problem(origin, 0, "", "no policy in these files: every document is empty"))
    if problems:
        raise PolicyError(tuple(sorted(problems, key=lambda p: (p.file, p.line, p.path, p.message))))
    return made
