"""Replay beside torch.compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._dynamo
from torch import nn

from tests.record.twin.replayed_networks import CLASSES, WIDTH
from tests.record.twin.replaying import Keeper, Watch, linear

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_compiled_code_is_traced_as_it_would_be_without_us(keeper: Keeper) -> None:
    net = linear(keeper)
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x: net(x).sum(), backend=backend)
    for _ in range(3):
        compiled(torch.randn(2, WIDTH)).backward()
        net(torch.randn(2, WIDTH))
        keeper.kept.forget()
    assert len(graphs) == 1


def test_a_compiled_root_is_replayed_eagerly(keeper: Keeper) -> None:
    net: Any = torch.compile(nn.Linear(WIDTH, CLASSES), backend="eager")
    keeper.meet(net)
    keeper.backward(net(torch.randn(2, WIDTH)).sum())
    watch = Watch()
    assert keeper.replay(watch).confirmed
    assert watch.operations > 1
