"""The names and callables that are taken to be without effect, and those of torch's that are not."""

from __future__ import annotations

import collections
import functools
import itertools
import math
import operator
import random
import types
import typing
from typing import Any

import torch


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def home(obj: Any) -> str:
    """Return the module that a callable was written in, whatever it says of itself."""
    if issubclass(type(obj), types.FunctionType):
        name = obj.__globals__.get("__name__")
    elif issubclass(type(obj), types.BuiltinFunctionType):
        owner = obj.__self__
        name = owner.__name__ if isinstance(owner, types.ModuleType) else None
        kind = owner if isinstance(owner, type) else type(owner)
        variable = owner is None and vars(torch).get(obj.__name__) is obj
        variable = variable or kind.__name__ == "_VariableFunctionsClass"
        name = name or ("torch" if variable else kind.__module__)
    else:
        kind = obj if issubclass(type(obj), type) else type(obj)
        name = kind.__module__
    return name if isinstance(name, str) else ""


CHANGING = _words("""
    append extend insert pop popitem popleft appendleft extendleft remove discard clear update
    setdefault reverse rotate move_to_end add sort difference_update intersection_update
    symmetric_difference_update
""")
"""Methods that change Python's containers."""

READING = _words("""
    items keys values get index count copy union intersection difference issubset issuperset
    isdisjoint symmetric_difference most_common
""")

_TEXT = frozenset(name for name in dir(str) if not name.startswith("_"))
_NUMBER = frozenset({"bit_length", "is_integer", "conjugate", "hex"})

_EFFECTS_OF_TENSORS = _words("""
    backward register_hook register_post_accumulate_grad_hook apply_ map_ map2_ set_ share_memory_
    module_load storage untyped_storage resize_ resize_as_ swap_tensors squeeze_ unsqueeze_ t_
    transpose_ swapaxes_ swapdims_ as_strided_ detach_ rename_
""")

TENSOR = frozenset(n for n in dir(torch.Tensor) if not n.startswith("_")) - _EFFECTS_OF_TENSORS

METHODS_OF_MADE = TENSOR | _TEXT | _NUMBER | READING
METHODS_OF_GIVEN = METHODS_OF_MADE - {"add", "sort"}
"""`add` and `sort` change a set or list; on what torch has made they do not."""
METHODS_OF_FRESH = METHODS_OF_MADE | CHANGING

METHODS_OF_CONTEXT = _words("""
    save_for_backward save_for_forward mark_dirty mark_non_differentiable set_materialize_grads
""")

METHODS_OF_MODULES = _words("""
    forward __call__ parameters named_parameters buffers named_buffers children named_children
    modules named_modules get_parameter get_buffer get_submodule items keys values train eval
    flatten_parameters generate_square_subsequent_mask merge_masks _forward_unimplemented __init__
    _get_name __len__ __iter__ __getitem__ __contains__
""")
"""Methods of torch's own modules that change no more than what is put back."""

CONTAINERS = (list, dict, set, collections.OrderedDict, collections.deque, collections.defaultdict)
"""Of exactly these types, what a module holds is put back."""

_STATEFUL = ("set_", "use_", "register", "reset_", "manual_seed", "seed", "init_", "_set", "enable_", "disable_")
_STATEFUL_NAMES = _words("""
    save load backward empty_cache compile seed_all initial_seed fork swap_tensors wait
    import_ir_module reset set_detect_anomaly cudart ipc_collect from_file
""")
_STATEFUL_HOMES = (
    "torch.distributed", "torch.multiprocessing", "torch.hub", "torch.jit", "torch.library", "torch.onnx",
    "torch.profiler", "torch.optim", "torch.utils.data", "torch.utils.tensorboard", "torch.serialization",
    "torch.package", "torch.export", "torch.fx", "torch.ops", "torch._dynamo", "torch._inductor", "torch.overrides",
    "torch.utils._python_dispatch", "torch.nn.utils.parametriz", "torch.nn.utils.prune", "torch.nn.utils.weight_norm",
    "torch.nn.utils.spectral_norm", "torch.nn.utils.fusion", "torch.nn.utils.memory_format", "torch.nn.modules.module",
    "torch.utils.cpp_extension", "torch.futures", "torch.cuda.graphs",
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


CALLING = _words("""
    vmap grad grad_and_value vjp jvp jacrev jacfwd hessian functionalize partial
""")
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

UNCALLED: frozenset[Any] = frozenset({isinstance, issubclass, callable, id, type, hasattr, typing.cast})
"""What does not call an argument that could be called."""

NEW_CONTAINERS = (list, dict, set, collections.OrderedDict, collections.deque, collections.defaultdict,
    collections.Counter)  # fmt: skip
SAME_ELEMENTS = (tuple, frozenset, reversed, sorted, itertools.chain, itertools.islice, itertools.cycle,
    itertools.repeat)  # fmt: skip

_GLOBAL_GENERATORS = ("random", "numpy.random.mtrand")


def draws_globally(obj: Any) -> bool:
    """Whether `obj` is a function that draws from the generator that Python or numpy owns."""
    if type(obj) not in {types.MethodType, types.BuiltinFunctionType}:
        return False
    owner = obj.__self__
    kind = type(owner)
    if kind.__module__ not in _GLOBAL_GENERATORS or kind.__name__ not in {"Random", "RandomState"}:
        return False
    mine = owner is getattr(random, "_inst", None) or kind.__name__ == "RandomState"
    names = {"seed", "setstate", "set_state", "shuffle"}
    return mine and getattr(obj, "__name__", "seed") not in names
