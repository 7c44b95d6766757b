"""On a device no index of a twin's gets into a kernel that would end the process over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F

from ampdoctor.record.twin import conversion
from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.counterfactual import FP32
from ampdoctor.record.twin.device_asserts import Checks, checks_of
from ampdoctor.record.twin.operations import Operation, traits_of
from ampdoctor.record.twin.place import NOWHERE, Place
from tests.record.twin.beside import alone, beside, half, same
from tests.record.twin.local_rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

T = torch.Tensor


@pytest.fixture
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the CPU for a device on which a failed check is fatal."""
    monkeypatch.setattr(conversion, "fatal", lambda device: True)


def index_of(x: T) -> T:
    """Return an index that is 2 in the run, and in the FP32 twin 3000."""
    rounded = (x.sum() * 0 + 2048.0) + 1.0  # 2048 in FP16
    return ((rounded - 2048.0).float() * 2998 + 2).long().reshape(1)


def embedded(x: T) -> T:
    return F.embedding(index_of(x), x.float())


def indexed(x: T) -> T:
    return x[index_of(x)]


def put(x: T) -> T:
    y = x.clone()
    y[index_of(x)] = 0.5
    return y


def gathered(x: T) -> T:
    return x.gather(0, index_of(x).expand(1, 16))


def scattered(x: T) -> T:
    return x.scatter(0, index_of(x).expand(1, 16), 2.0)


def added(x: T) -> T:
    return x.float().index_add(0, index_of(x), torch.ones(1, 16))


def selected(x: T) -> T:
    return x.index_select(0, index_of(x))


def taken(x: T) -> T:
    return torch.take(x, index_of(x))


def likelihood(x: T) -> T:
    return F.nll_loss(x.float()[:1], index_of(x))


FUNCTIONS = (embedded, indexed, put, gathered, scattered, added, selected, taken, likelihood)


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_indices_are_those_of_the_run(function: Callable[[T], T], monkeypatch: pytest.MonkeyPatch) -> None:
    x = half(8, 16)
    found = beside(function, [x])
    assert found.errors == []
    assert same(found.results, alone(function, [x]))
    # Nothing has failed: what failed on a device would not be caught.
    assert all("as others could stop the device" in name for name in found.twin.not_twinned)
    assert found.twin.not_twinned
    assert torch.allclose(found.values()[0].float(), found.results[0].float(), rtol=1e-2)
    monkeypatch.setattr(conversion, "fatal", lambda device: False)
    assert any("out of" in name for name in beside(function, [x]).twin.not_twinned)


@pytest.mark.usefixtures("_elsewhere")
def test_numbers_that_are_checked_are_the_run_s() -> None:
    def entropy(x: T) -> tuple[T, ...]:
        p = torch.sigmoid(x).requires_grad_()
        with torch.enable_grad():
            loss = F.binary_cross_entropy(p, torch.ones_like(p))
        return loss.detach(), *torch.autograd.grad(loss, p)

    found = beside(entropy, [half(8, 16)])
    assert found.errors == []
    assert dict(found.twin.not_twinned) == {"aten.binary_cross_entropy: could stop the device": 1}
    loss, gradient = found.values()
    assert torch.equal(loss, found.results[0].float())
    assert gradient.dtype is torch.float32
    assert not torch.equal(gradient, found.results[1].float())


@pytest.mark.usefixtures("_elsewhere")
def test_masks_that_count_are_the_run_s() -> None:
    def masked(x: T) -> T:
        return x.float().masked_scatter(x * 0.3337 > 0.2, torch.arange(128.0))

    x = half(8, 16)
    found = beside(masked, [x])
    assert found.errors == []
    assert same(found.results, alone(masked, [x]))
    assert torch.equal(found.values()[0] == found.results[0], torch.ones(8, 16).bool())


@pytest.mark.usefixtures("_elsewhere")
def test_what_has_another_shape_is_no_place_to_look_in() -> None:
    def picked(x: T) -> T:
        same = (x * 0 + 2048.0) + 1.0 == 2048.0  # in FP16
        return x[same][torch.tensor([127])]

    found = beside(picked, [half(8, 16)])
    assert found.errors == []
    assert any("could stop the device" in name for name in found.twin.not_twinned)


@pytest.mark.usefixtures("_elsewhere")
def test_local_twins_have_the_run_s_own_indices() -> None:
    x = half(8, 16)
    p = torch.sigmoid(x)
    rows = rows_of(lambda: [F.nll_loss(x, torch.arange(8)), F.binary_cross_entropy(p, x * 0)])
    assert {"aten.nll_loss_forward", "aten.binary_cross_entropy"} <= {r.op for r in rows}


def test_in_place_and_out_of_place_are_both_known() -> None:
    for name in ("index_put_", "_index_put_impl_", "index_add", "scatter_reduce_", "embedding"):
        assert checks_of(name) is Checks.INDICES
    for name in ("mm", "sum", "max_pool2d_with_indices", "binary_cross_entropy_with_logits"):
        assert checks_of(name) is Checks.NOTHING


@pytest.mark.parametrize("name", ["_cudnn_rnn", "miopen_rnn", "_cudnn_rnn_flatten_weight"])
def test_weights_of_a_layout_of_their_own_are_not_laid_over_at_another_width(name: str) -> None:
    function = getattr(torch.ops.aten, name).default
    weights, result = half(64), half(4)
    operation = Operation(
        function, (half(4), [weights], 4, weights), {}, traits_of(function), Place(None, False, NOWHERE)
    )  # fmt: skip
    twin = CarriedTwin(FP32)
    after = twin.before(operation)
    assert after is not None
    after(result)
    assert [*twin.not_twinned] == [f"aten.{name}: its weights lie in memory in another way at another width"]
    assert torch.equal(twin.values(result), result.float())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_device_lives_on(function: Callable[[T], T]) -> None:
    def on_the_device(x: T) -> T:
        return function(x.cuda()).cpu()

    found = beside(on_the_device, [half(8, 16)])
    torch.cuda.synchronize()
    assert found.errors == []
    assert float(torch.ones(3, device="cuda").sum()) == 3.0
