"""What cannot be used of all that is read: one error for commands to end with, whatever they read."""


class InputError(Exception):
    """A policy, a file, a history or a cluster cannot be used; each of `problems` is a line that says why.

    A command that it ends prints these and exits with 2, without a traceback (webhook/cli/command.py).
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems: tuple[object, ...] = problems
