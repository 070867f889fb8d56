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


def holds(expression, **objects):
    """Evaluate CEL by rewriting it to Python; has(a.b) is true if reading a.b succeeds."""
    strings = []

    def keep(found):
        strings.append(json.loads(found[0]))
        return f"S[{len(strings) - 1}]"

    text = re.sub(r'"(?:[^"\\]|\\.)*"', keep, expression)
    text = re.sub(r"has\(([\w.]+)\)", r"HAS(lambda: \1)", text)
    text = re.sub(r"exists\((\w), ", r"exists(lambda \1: ", text)
    text = re.sub(r"\(([^()?]*(?:\([^()]*\)[^()?]*)*) \? ([^:()]+) : ([^()]+?)\)", r"(\2 if \1 else \3)", text)
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
