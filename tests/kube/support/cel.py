"""A reading of the small part of CEL that registrations and guards use.

The expressions run on a real API server in the scenarios.
"""

import json
import re


class AbsentError(Exception):
    """An absent field was read: CEL would fail, and so would the request."""


class Value(dict):
    def __getattr__(self, name):
        if name == "exists":
            return lambda test: any(test(key) for key in self)
        try:
            return wrap(self[name])
        except KeyError:
            raise AbsentError(name) from None


class Values(list):
    def exists(self, test):
        return any(test(item) for item in self)

    def __add__(self, other):
        return Values([*self, *other])


class Text(str):
    def startsWith(self, start):  # noqa: N802 - CEL's name
        return self.startswith(start)

    def matches(self, pattern):
        return re.search(pattern, self) is not None


def wrap(value):
    if isinstance(value, dict):
        return Value({Text(key): wrap(item) for key, item in value.items()})
    if isinstance(value, list):
        return Values(map(wrap, value))
    return Text(value) if isinstance(value, str) else value


def _without_ternaries(text):
    """Rewrite each `(a ? b : c)` to `(b if a else c)`."""
    while (mark := text.find("?")) >= 0:
        begin, end = _outside(text, mark, -1) + 1, _outside(text, mark, 1)
        colon = _outside(text, mark, 1, until=":")
        test, then, other = text[begin:mark], text[mark + 1 : colon], text[colon + 1 : end]
        text = f"{text[:begin]}{then.strip()} if {test.strip()} else {other.strip()}{text[end:]}"
    return text


def _outside(text, at, step, until=None):
    """Return the position of the parenthesis around a position, or of `until` before that."""
    depth, ends = 0, "()"[::step]
    while True:
        at += step
        if depth == 0 and text[at] in (until, ends[1]):
            return at
        depth += (text[at] == ends[0]) - (text[at] == ends[1])


def holds(expression, **objects):
    """Evaluate CEL by rewriting it to Python; has(a.b) is true if reading a.b succeeds."""
    strings = []

    def keep(found):
        strings.append(json.loads(found[0]))
        return f"S[{len(strings) - 1}]"

    text = _without_ternaries(re.sub(r'"(?:[^"\\]|\\.)*"', keep, expression))
    text = re.sub(r"\bhas\(", r"HAS(lambda: ", text)
    text = re.sub(r"exists\((\w), ", r"exists(lambda \1: ", text)
    text = text.replace("||", " or ").replace("&&", " and ").replace("false", "False")
    text = re.sub(r"!(?!=)", "not ", text.replace("true", "True"))

    def has(read):
        try:
            read()
        except AbsentError:
            return False
        return True

    scope = {
        "S": strings,
        "HAS": has,
        "null": None,
        "Values": Values,
        **{name: wrap(value) for name, value in objects.items()},
    }
    return eval(text.replace("[]", "Values()"), scope)
