"""The budget of one expansion: steps and bytes, handed down to everything that takes part in it.

What an object expands to may be far larger than the object: a parameter that is inserted many times, templates that
call templates, defaults that are merged into each of them. Whatever a reader repeats or makes is taken from the budget
before it is done, so that an object of any shape takes a bounded time and memory.
"""

from typing import Final

STEPS: Final = 130_000
"""Steps of an expansion: a value that is read, or work that takes about as long. All together take 30 ms. A workflow of
500 templates and 2,000 tasks takes five sixths of them, a JobSet of 32 jobs a fifth."""

BYTES: Final = 4 * 1024 * 1024
"""Bytes that an expansion makes: names, inserted parameters, pods as JSON. Pods that share no part of the object have
no more than the object itself, 1 MiB."""

DEPTH: Final = 100
"""Levels of lists and mappings in an object that is read: its readers call themselves once or twice for each. Those of
real objects have up to 30."""

_NESTED: Final = (dict, list)  # a tuple is checked twice as fast as a union

TOO_LARGE: Final = "too large to be judged as a whole: its pods are judged one by one"


class BudgetSpentError(Exception):
    """An expansion takes more than its budget."""


class Budget:
    """What is left for one expansion."""

    __slots__ = ("bytes_left", "steps_left")

    def __init__(self, *, steps: int = STEPS, max_bytes: int = BYTES) -> None:
        self.steps_left = steps
        self.bytes_left = max_bytes

    def step(self, number: int = 1) -> None:
        """Take so many steps. Raises BudgetSpentError if fewer are left."""
        self.steps_left -= number
        if self.steps_left < 0:
            raise BudgetSpentError

    def write(self, length: int) -> None:
        """Take so many bytes. Raises BudgetSpentError if fewer are left."""
        self.bytes_left -= length
        if self.bytes_left < 0:
            raise BudgetSpentError

    def read(self, document: object) -> None:
        """Take a step for each value in a document; afterwards it may be read through without taking further ones.

        Raises BudgetSpentError if it has too many values, or too many levels.
        """
        level, depth = [document], 0
        while level:
            depth += 1
            if depth > DEPTH:
                raise BudgetSpentError
            below: list[object] = []
            for value in level:
                items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
                self.steps_left -= len(items)
                if self.steps_left < 0:
                    raise BudgetSpentError
                below += [item for item in items if isinstance(item, _NESTED)]
            level = below
