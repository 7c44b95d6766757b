"""What has to be known of an operation before it can be executed a second time: read from its schema, once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import torch

from ampdoctor.record.twin.device_asserts import Checks, checks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ampdoctor.record.twin.place import Place


class Kind(Enum):
    """How an operation is treated."""

    PLAIN = "plain"
    VIEW = "view"
    """Its result lies in the storage of its argument, and so does the twin of the one in that of the other."""
    DRAW = "draw"
    """Random numbers: a twin takes what the run has drawn."""
    READ = "read"
    """No tensor comes out: the host looked at a value, and what follows from it follows the run."""
    OPAQUE = "opaque"
    """Not to be executed twice: it may talk to other ranks, count its calls or know one format only."""


@dataclass(frozen=True)
class Traits:
    """What the schema of an operation says.

    Attributes:
        name: `aten.mm`.
        kind: how it is treated.
        writes: names and positions of the arguments that it changes in place.
        draws: it takes random numbers, and its result depends on its inputs as well.
        checks: what its kernels check on a device.
        allocates: it only makes room for values, which are not there yet.
        overwrites: what it changes in place it does not read.
        own_layout: it keeps its weights in memory in a layout of their own for each width.
    """

    name: str
    kind: Kind
    writes: frozenset[int | str]
    draws: bool
    checks: Checks = Checks.NOTHING
    allocates: bool = False
    overwrites: bool = False
    own_layout: bool = False


_OWN_NAMESPACES = frozenset({"aten", "prims"})

_HIDDEN_STATE = frozenset({"running_mean", "running_var", "dropout_state"})
"""Arguments that batch norms and cuDNN's recurrent layers change in place though their schema does not say so."""

_DRAWS_FROM_INPUTS = frozenset({"native_dropout", "_fused_dropout", "rrelu_with_noise", "rrelu_with_noise_"})

_MOVES_STORAGE = frozenset({"set_", "set_data", "_unsafe_set_version_counter", "record_stream"})
"""A twin belongs to a storage: which tensor looks at it does not matter."""


_ALLOCATES = frozenset(
    {
        "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
        "_empty_affine_quantized", "resize_", "resize_as_",
    }
)  # fmt: skip

_OVERWRITING = """
    copy_ fill_ zero_ set_ resize_ resize_as_ masked_fill_ masked_scatter_ index_put_ _index_put_impl_ index_copy_
    index_fill_ scatter_ put_ eye_ _foreach_copy_ _foreach_zero_ random_ uniform_ normal_ bernoulli_ exponential_
    log_normal_ cauchy_ geometric_
"""
_OVERWRITES = frozenset(_OVERWRITING.split())

_OWN_LAYOUT = ("_cudnn_rnn", "miopen_rnn")


@cache
def traits_of(operation: Any) -> Traits:
    """Return the traits of an OpOverload or of a higher-order operator."""
    schema = getattr(operation, "_schema", None)
    if schema is None:
        return Traits(str(operation), Kind.OPAQUE, frozenset(), False)
    namespace, _, base = schema.name.partition("::")
    writes = frozenset(_written(schema.arguments))
    random = torch.Tag.nondeterministic_seeded in operation.tags
    draws = random and (base in _DRAWS_FROM_INPUTS or "attention" in base or "rnn" in base)
    return Traits(
        f"{namespace}.{base}",
        _kind(namespace, base, schema, writes, random and not draws),
        writes,
        draws,
        checks_of(base) if namespace in _OWN_NAMESPACES else Checks.NOTHING,
        namespace == "aten" and base in _ALLOCATES,
        base in _OVERWRITES or _only_out(schema, writes),
        base.startswith(_OWN_LAYOUT),
    )


def _written(arguments: Any) -> Iterator[int | str]:
    for position, argument in enumerate(arguments):
        declared = argument.alias_info is not None and argument.alias_info.is_write
        if declared or argument.name in _HIDDEN_STATE:
            yield argument.name
            if not argument.kwarg_only:
                yield position


def _only_out(schema: Any, writes: frozenset[int | str]) -> bool:
    """Whether it writes to `out=` arguments only."""
    return bool(writes) and all(a.kwarg_only for a in schema.arguments if a.name in writes)


def _kind(namespace: str, base: str, schema: Any, writes: frozenset[int | str], draw: bool) -> Kind:
    if namespace not in _OWN_NAMESPACES:
        return Kind.OPAQUE
    if base in _MOVES_STORAGE:
        return Kind.VIEW
    if not any("Tensor" in str(r.type) for r in schema.returns) and not writes:
        return Kind.READ
    if draw:
        return Kind.DRAW
    aliased = any(r.alias_info is not None for r in schema.returns)
    return Kind.VIEW if aliased and not writes else Kind.PLAIN


@dataclass
class Operation:
    """One operation of the step, about to run or just run.

    Attributes:
        function: what was called.
        args: its positional arguments.
        kwargs: its named arguments.
        traits: what its schema says.
        place: where in the program it is.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    traits: Traits
    place: Place

    @cached_property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among its arguments."""
        return [*tensors_of(self.args), *tensors_of((*self.kwargs.values(),))]

    def mapped(self, convert: Callable[[Any, bool], Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with `convert(tensor or dtype, written)` in place of tensors and dtypes."""
        writes = self.traits.writes
        args = [_convert(a, n in writes, convert) for n, a in enumerate(self.args)]
        kwargs = {k: _convert(a, k in writes, convert) for k, a in self.kwargs.items()}
        return args, kwargs

    def written(self) -> Iterator[torch.Tensor]:
        """Yield the tensors that it changes in place."""
        if self.traits.writes:
            for n, value in [*enumerate(self.args), *self.kwargs.items()]:
                if n in self.traits.writes:
                    yield from tensors_of(value)


def nth(value: Any, n: int) -> Any:
    """Return what belongs to the n-th tensor of a `_foreach_` operation: of a list an element, else what is for all."""
    return value[n] if isinstance(value, (list, tuple)) else value


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in an argument or a result: a tensor, or a list or tuple of them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)


def _convert(value: Any, written: bool, convert: Callable[[Any, bool], Any]) -> Any:
    if isinstance(value, (torch.Tensor, torch.dtype)):
        return convert(value, written)
    if type(value) in {list, tuple}:
        return type(value)(_convert(v, written, convert) for v in value)
    return value
