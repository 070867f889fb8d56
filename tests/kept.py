"""How much memory a thing holds, whatever its fields are called."""

import gc
from types import BuiltinFunctionType, FunctionType, ModuleType

SHARED = (type, FunctionType, BuiltinFunctionType, ModuleType)


def kept(*things: object) -> int:
    """How many objects these hold, however deep; what all of the program shares is not counted."""
    todo, seen = list(things), {}
    while todo:
        each = todo.pop()
        if id(each) not in seen and not isinstance(each, SHARED):
            seen[id(each)] = each
            todo += gc.get_referents(each)
    return len(seen)
