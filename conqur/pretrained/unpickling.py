"""Pickles read without running them: a small machine that knows their instructions for plain data.

`pickle` calls whatever a file names. Here a name stands for what the reader says, which is never
the thing named, and no instruction reaches anything else. Every step takes constant time and
memory, or as much as the bytes it reads; there are as many steps as the file has instructions.
"""

import io
import pickletools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

MOST_INSTRUCTIONS = 2_000_000
"""Pickles with more are not believed in: each may cost some hundred bytes."""

MOST_ARGUMENTS = 32
"""Of a call: the same long ones could be passed again and again."""

Names = Mapping[tuple[str, str], Callable[..., Any]]


class Located(bytes):
    """Bytes out of a pickle that know where in it they are.

    Attributes:
        start: the position of the first of them in the pickle.
    """

    start: int


class Inert:
    """What stands for objects that nothing is to be known about: it takes anything, does nothing.

    Put `("package", "*"): Inert` among the allowed names for all that a package may have pickled.
    """

    __slots__ = ()

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        """Ignore it."""


def unpickle(data: bytes, *, allowed: Names, persistent: Callable[[Any], Any] | None = None) -> Any:
    """The object in a pickle; its bytes and byte arrays come as `Located`.

    Args:
        data: the pickle; anything behind its end is ignored.
        allowed: what stands for the names in it, by module and name; a name "*" stands for all in
            that module and in the modules below it. These are called with whatever the file says,
            at most `MOST_ARGUMENTS` of them and always by position. They must be harmless then,
            and cost no more than a constant (no copies of arguments). Anything that they raise
            becomes a `ValueError`. An object's state goes to its `__setstate__`, where its class
            has one; that of a dict is dropped.
        persistent: what stands for objects outside of the pickle, by their identification.

    Raises:
        ValueError: if it is none, names something else or asks for anything unusual.
    """
    machine = _Machine(allowed, persistent)
    stream = io.BytesIO(data)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if count > MOST_INSTRUCTIONS:
                raise _Refused(f"its pickle has more than {MOST_INSTRUCTIONS} instructions")
            if isinstance(argument, bytes | bytearray):
                argument = Located(argument)
                argument.start = stream.tell() - len(argument)
            machine.run(opcode.name, argument)
    except _Refused as refused:
        raise ValueError(str(refused)) from None
    except Exception as error:  # there is no end to what broken files lead to
        raise ValueError(f"its pickle is broken ({type(error).__name__})") from None
    return machine.result


class _Refused(ValueError):
    """With a sentence for people."""


class _Machine:
    """The stack of a pickle and what its instructions do to it."""

    def __init__(self, allowed: Names, persistent: Callable[[Any], Any] | None) -> None:
        self.result: Any = None
        self._allowed = allowed
        self._callable = {id(function) for function in allowed.values()}
        self._persistent = persistent
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self, instruction: str, argument: Any) -> None:
        """Do what one instruction says."""
        if instruction in _VALUES:
            self._stack.append(argument)
        elif instruction in _CONSTANTS:
            self._stack.append(_CONSTANTS[instruction]())
        elif instruction in _STEPS:
            _STEPS[instruction](self, argument)
        elif instruction not in ("PROTO", "FRAME"):
            raise _Refused(f"its pickle has the unusual instruction {instruction}")

    def stop(self, _: Any) -> None:
        """The end: what is on top is the result."""
        self.result = self._stack.pop()

    def mark(self, _: Any) -> None:
        """Begin a new stack above this one."""
        self._marks.append(self._stack)
        self._stack = []

    def pop(self, _: Any) -> None:
        """Forget what is on top."""
        if self._stack:
            self._stack.pop()
        else:
            self._stack = self._marks.pop()

    def duplicate(self, _: Any) -> None:
        """What is on top once more."""
        self._stack.append(self._stack[-1])

    def remember(self, slot: int | None) -> None:
        """Keep what is on top in a slot, the next one if not said."""
        self._memo[len(self._memo) if slot is None else slot] = self._stack[-1]

    def recall(self, slot: int) -> None:
        """What is in a slot."""
        self._stack.append(self._memo[slot])

    def make_tuple(self, _: Any) -> None:
        """Of all above the mark."""
        items = tuple(self._above_mark())
        self._stack.append(items)

    def make_short_tuple(self, length: int) -> None:
        """Of so many on top."""
        items = tuple(self._stack[-length:])
        if len(items) != length:
            raise IndexError
        del self._stack[-length:]
        self._stack.append(items)

    def make_list(self, _: Any) -> None:
        """Of all above the mark."""
        items = self._above_mark()
        self._stack.append(items)

    def make_dict(self, _: Any) -> None:
        """Of the pairs above the mark."""
        items, filled = self._above_mark(), dict[Any, Any]()
        _put(filled, items)
        self._stack.append(filled)

    def make_frozen_set(self, _: Any) -> None:
        """Of all above the mark."""
        items = self._above_mark()
        self._stack.append(frozenset(map(_key, items)))

    def append(self, _: Any) -> None:
        """Put what is on top into the list below it."""
        item = self._stack.pop()
        _extend(self._stack[-1], [item])

    def extend(self, _: Any) -> None:
        """Put all above the mark into the list below it."""
        items = self._above_mark()
        _extend(self._stack[-1], items)

    def put(self, _: Any) -> None:
        """Put the pair on top into the dict below it."""
        value, key = self._stack.pop(), self._stack.pop()
        _put(self._stack[-1], [key, value])

    def update(self, _: Any) -> None:
        """Put the pairs above the mark into the dict below it."""
        items = self._above_mark()
        _put(self._stack[-1], items)

    def add(self, _: Any) -> None:
        """Put all above the mark into the set below it."""
        items = self._above_mark()
        if type(self._stack[-1]) is not set:
            raise TypeError
        self._stack[-1].update(map(_key, items))

    def name(self, both: str) -> None:
        """What stands for a name, given as "module name"."""
        module, _, name = both.partition(" ")
        self._stack.append(self._allowed_name(module, name))

    def name_on_stack(self, _: Any) -> None:
        """What stands for the name on top, in the module below it."""
        name, module = self._stack.pop(), self._stack.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise TypeError
        self._stack.append(self._allowed_name(module, name))

    def call(self, _: Any) -> None:
        """Call what stands for a name."""
        arguments, function = self._stack.pop(), self._stack.pop()
        if id(function) not in self._callable or type(arguments) is not tuple:
            raise TypeError
        if len(arguments) > MOST_ARGUMENTS:
            raise _Refused(f"its pickle has a call with more than {MOST_ARGUMENTS} arguments")
        self._stack.append(function(*arguments))

    def call_with_names(self, _: Any) -> None:
        """The same, with arguments by name, of which there may be none."""
        named = self._stack.pop()
        if type(named) is not dict or named:
            raise _Refused("its pickle has a call with named arguments")
        self.call(None)

    def build(self, _: Any) -> None:
        """Give a state to the object below it."""
        state, built = self._stack.pop(), self._stack[-1]
        if hasattr(type(built), "__setstate__"):
            type(built).__setstate__(built, state)
        elif not isinstance(built, dict):
            raise TypeError

    def persistent(self, _: Any) -> None:
        """What stands for an object that is not in the pickle."""
        if self._persistent is None:
            raise _Refused("its pickle refers to objects outside of it")
        self._stack.append(self._persistent(self._stack.pop()))

    def _above_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._marks.pop()
        return items

    def _allowed_name(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) in self._allowed:
            return self._allowed[module, name]
        parts = module[:200].split(".")
        for length in range(len(parts), 0, -1):
            package = ".".join(parts[:length])
            if (package, "*") in self._allowed:
                return self._allowed[package, "*"]
        raise _Refused(
            f"its pickle names {module[:60]}.{name[:60]}".encode("unicode_escape").decode()
        )


def _key(value: Any) -> Any:
    """Refuse keys other than words and numbers: hashing some takes forever."""
    if type(value) in (str, Located, bool, float, type(None)):
        return value
    if type(value) is int and abs(value) < 2**60:
        return value
    raise _Refused("its pickle has a set or a dict with unusual keys")


def _put(filled: Any, items: Sequence[Any]) -> None:
    if isinstance(filled, Inert):
        return
    if not isinstance(filled, dict) or len(items) % 2:
        raise TypeError
    dict.update(filled, zip(map(_key, items[::2]), items[1::2], strict=True))


def _extend(filled: Any, items: Iterable[Any]) -> None:
    if isinstance(filled, Inert):
        return
    if not isinstance(filled, list):
        raise TypeError
    list.extend(filled, items)


# fmt: off
_VALUES = {
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "BYTEARRAY8", "BINSTRING", "SHORT_BINSTRING",
}
# fmt: on
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
}
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "STOP": _Machine.stop,
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "POP_MARK": lambda machine, _: (machine._above_mark(), None)[1],
    "DUP": _Machine.duplicate,
    "MEMOIZE": _Machine.remember,
    "BINPUT": _Machine.remember,
    "LONG_BINPUT": _Machine.remember,
    "BINGET": _Machine.recall,
    "LONG_BINGET": _Machine.recall,
    "TUPLE": _Machine.make_tuple,
    "TUPLE1": lambda machine, _: machine.make_short_tuple(1),
    "TUPLE2": lambda machine, _: machine.make_short_tuple(2),
    "TUPLE3": lambda machine, _: machine.make_short_tuple(3),
    "LIST": _Machine.make_list,
    "DICT": _Machine.make_dict,
    "FROZENSET": _Machine.make_frozen_set,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.extend,
    "SETITEM": _Machine.put,
    "SETITEMS": _Machine.update,
    "ADDITEMS": _Machine.add,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.name_on_stack,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.call,
    "NEWOBJ_EX": _Machine.call_with_names,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.persistent,
}
