"""What the reading of a forward knows of a value, and the names and callables that it takes to be without effect."""

from __future__ import annotations

import collections
import enum
import functools
import itertools
import math
import operator
import random
import types
import typing
from dataclasses import dataclass
from typing import Any

import torch


class EffectError(Exception):
    """Something has an effect, or can't be seen to have none; the message says what, and where."""


@dataclass(frozen=True)
class At:
    """A place in the source, for messages."""

    file: str
    line: int

    def effect(self, what: str) -> EffectError:
        """Return the error that tells of `what`, here."""
        return EffectError(f"{what} ({self.file}:{self.line})")


class Plain(enum.Enum):
    """Values of which no more is known than where they come from.

    Attributes:
        GIVEN: handed in, or anything else: the least that can be known.
        MADE: made by torch or by arithmetic; a number, a string, a tensor, tuples of them.
        NONE: None. What is called or read on it fails, and so has no effect.
        FRESH: a container made by the forward itself, which nobody else holds.
        CHECKED: a callable that has been looked at already.
        CONTEXT: the `ctx` of an autograd function.
    """

    GIVEN = "what was handed in"
    MADE = "a value"
    NONE = "None"
    FRESH = "a new container"
    CHECKED = "a function"
    CONTEXT = "ctx"


class Known:
    """An object that exists already.

    Attributes:
        own: whether it was reached through attributes of a module, so that what changes in it is put back.
    """

    __slots__ = ("obj", "own")

    def __init__(self, obj: Any, *, own: bool) -> None:
        self.obj, self.own = obj, own

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and other.obj is self.obj and other.own is self.own

    def __hash__(self) -> int:
        return hash((id(self.obj), self.own))


@dataclass(frozen=True)
class Elements:
    """A sequence, not to be changed, of which each element is one of these."""

    inside: frozenset[Any]


@dataclass(frozen=True)
class Items:
    """A tuple, element by element."""

    items: tuple[frozenset[Any], ...]


@dataclass(frozen=True)
class New:
    """An object of a class of the user's that the forward itself has made."""

    kind: type


@dataclass(frozen=True)
class Bound:
    """A function and its first argument."""

    function: Any
    receiver: Any


@dataclass(frozen=True)
class Super:
    """What `super()` returns."""

    after: type
    receiver: Any


@dataclass(frozen=True)
class Apply:
    """`apply` of a function of autograd."""

    kind: type


Value = frozenset[Any]
"""Every possible one; empty where no value can come to be, since getting there fails."""

GIVEN: Value = frozenset({Plain.GIVEN})
MADE: Value = frozenset({Plain.MADE})
FRESH: Value = frozenset({Plain.FRESH})
CHECKED: Value = frozenset({Plain.CHECKED})
NOTHING: Value = frozenset()

_ATOMS = (
    int, float, complex, str, bytes, bool, enum.Enum, torch.dtype, torch.device, torch.Size, torch.layout,
    torch.memory_format, type(Ellipsis), type(NotImplemented), range, slice,
)  # fmt: skip


def is_atom(obj: Any) -> bool:
    """Whether `obj` is a constant: it never changes."""
    kind = type(obj)
    if issubclass(kind, (tuple, frozenset)):
        inside = tuple.__iter__(obj) if issubclass(kind, tuple) else frozenset.__iter__(obj)
        return all(item is None or is_atom(item) for item in inside)
    return issubclass(kind, _ATOMS)


def lift(obj: Any, *, own: bool) -> Value:
    """Return what is known of an object."""
    if obj is None:
        return frozenset({Plain.NONE})
    kind = type(obj)
    if is_atom(obj) or (issubclass(kind, torch.Tensor) and in_torch(kind.__module__)):
        return MADE
    return frozenset({Known(obj, own=own)})


def sequence(inside: Value) -> Value:
    """Return a sequence of elements like these; loops that nest ever more of them come to an end."""
    return frozenset({Elements(inside)}) if _depth(inside) < 4 else GIVEN


def pair(*items: Value) -> Value:
    """Return a tuple of these."""
    deep = len(items) > 64 or any(_depth(item) >= 4 for item in items)
    return GIVEN if deep else frozenset({Items(items)})


def _depth(value: Value) -> int:
    deepest = 0
    for atom in value:
        if isinstance(atom, Elements):
            deepest = max(deepest, 1 + _depth(atom.inside))
        elif isinstance(atom, Items):
            deepest = max(deepest, 1 + max((_depth(item) for item in atom.items), default=0))
    return deepest


def in_torch(module: object) -> bool:
    """Whether a module of this name is torch's; those of einops are as good."""
    return isinstance(module, str) and module.partition(".")[0] in {"torch", "einops"}


def home(obj: Any) -> str:
    """Return the module that a callable was written in, whatever it says of itself."""
    if isinstance(obj, types.FunctionType):
        name = obj.__globals__.get("__name__")
    elif isinstance(obj, types.BuiltinFunctionType):
        owner = obj.__self__
        name = owner.__name__ if isinstance(owner, types.ModuleType) else None
        kind = owner if isinstance(owner, type) else type(owner)
        variable = kind.__name__ == "_VariableFunctionsClass"
        name = name or ("torch" if variable else kind.__module__)
    else:
        kind = obj if isinstance(obj, type) else type(obj)
        name = kind.__module__
    return name if isinstance(name, str) else ""


CHANGING = frozenset(
    "append extend insert pop popitem popleft appendleft extendleft remove discard clear update setdefault reverse "
    "rotate move_to_end add sort difference_update intersection_update symmetric_difference_update".split()
)
"""Methods that change Python's containers."""

READING = frozenset(
    "items keys values get index count copy union intersection difference issubset issuperset isdisjoint "
    "symmetric_difference most_common".split()
)

_TEXT = frozenset(name for name in dir(str) if not name.startswith("_"))
_NUMBER = frozenset({"bit_length", "is_integer", "conjugate", "hex"})

_EFFECTS_OF_TENSORS = frozenset(
    "backward register_hook register_post_accumulate_grad_hook apply_ map_ map2_ set_ share_memory_ module_load "
    "storage untyped_storage resize_ resize_as_ swap_tensors".split()
)

TENSOR = frozenset(n for n in dir(torch.Tensor) if not n.startswith("_")) - _EFFECTS_OF_TENSORS

METHODS_OF_MADE = TENSOR | _TEXT | _NUMBER | READING
METHODS_OF_GIVEN = METHODS_OF_MADE - {"add", "sort"}
"""`add` and `sort` change a set or list; on what torch has made they do not."""
METHODS_OF_FRESH = METHODS_OF_MADE | CHANGING

METHODS_OF_CONTEXT = frozenset(
    "save_for_backward save_for_forward mark_dirty mark_non_differentiable set_materialize_grads".split()
)

METHODS_OF_MODULES = frozenset(
    "forward __call__ parameters named_parameters buffers named_buffers children named_children modules "
    "named_modules get_parameter get_buffer get_submodule items keys values train eval flatten_parameters "
    "generate_square_subsequent_mask merge_masks __init__ _get_name __len__ __iter__ __getitem__ __contains__".split()
)
"""Methods of torch's own modules that change no more than what is put back."""

CONTAINERS = (list, dict, set, collections.OrderedDict, collections.deque, collections.defaultdict)
"""Of exactly these types, what a module holds is put back."""

_STATEFUL = (
    "set_",
    "use_",
    "register",
    "reset_",
    "manual_seed",
    "seed",
    "init_",
    "_set",
    "enable_",
    "disable_",
)
_STATEFUL_NAMES = frozenset(
    "save load backward empty_cache compile seed_all initial_seed fork swap_tensors wait import_ir_module "
    "set_detect_anomaly cudart ipc_collect from_file".split()
)
_STATEFUL_HOMES = (
    "torch.distributed", "torch.multiprocessing", "torch.hub", "torch.jit", "torch.library", "torch.onnx",
    "torch.profiler", "torch.optim", "torch.utils.data", "torch.utils.tensorboard", "torch.serialization",
    "torch.package", "torch.export", "torch.fx", "torch.ops", "torch._dynamo", "torch._inductor", "torch.overrides",
    "torch.utils._python_dispatch", "torch.utils.cpp_extension", "torch.futures", "torch.cuda.graphs",
)  # fmt: skip


def stateful(obj: Any) -> bool:
    """Whether a callable of torch's does more than to calculate."""
    name = getattr(obj, "__name__", "")
    where = home(obj)
    return (
        name in _STATEFUL_NAMES
        or (name.startswith(_STATEFUL) and name not in {"set_grad_enabled", "enable_grad"})
        or (where.startswith(_STATEFUL_HOMES) and not where.startswith("torch._dynamo.external"))
    )


CALLING = frozenset(
    "vmap grad grad_and_value vjp jvp jacrev jacfwd hessian functionalize partial".split()
)
"""What returns a function that calls its first argument."""

PURE_BUILTINS: frozenset[Any] = frozenset({
    len, int, float, bool, str, isinstance, issubclass, sum, abs, all, any, min, max, round, slice, repr, divmod, pow,
    callable, id, complex, bytes, format, ord, chr, hash, range, typing.cast, object, map, filter, functools.reduce,
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.matmul,
    operator.neg, operator.itemgetter, operator.getitem, operator.lt, operator.le, operator.gt, operator.ge,
    operator.eq, operator.ne, operator.and_, operator.or_, operator.not_, operator.pow,
    itertools.count, itertools.product, itertools.accumulate, itertools.starmap, itertools.combinations,
    itertools.permutations, itertools.groupby, itertools.takewhile, itertools.dropwhile, itertools.zip_longest,
} | {f for name, f in vars(math).items() if not name.startswith("_") and callable(f)})  # fmt: skip

UNCALLED: frozenset[Any] = frozenset(
    {isinstance, issubclass, callable, id, type, hasattr, getattr, len, typing.cast, bool, hash}
)
"""What does not call an argument that could be called."""

NEW_CONTAINERS = (list, dict, set, collections.OrderedDict, collections.deque, collections.defaultdict,
    collections.Counter)  # fmt: skip
SAME_ELEMENTS = (tuple, frozenset, reversed, sorted, itertools.chain, itertools.islice, itertools.cycle,
    itertools.repeat)  # fmt: skip

_GLOBAL_GENERATORS = ("random", "numpy.random.mtrand")


def draws_globally(obj: Any) -> bool:
    """Whether `obj` is a function that draws from the generator that Python or numpy owns."""
    owner = getattr(obj, "__self__", None)
    kind = type(owner)
    if kind.__module__ not in _GLOBAL_GENERATORS or kind.__name__ not in {"Random", "RandomState"}:
        return False
    mine = owner is getattr(random, "_inst", None) or kind.__name__ == "RandomState"
    names = {"seed", "setstate", "set_state", "shuffle"}
    return mine and getattr(obj, "__name__", "seed") not in names
