"""One real step with carried twins beside it, taken without a recorder."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from ampdoctor.record.twin.carried import CarriedTwin
from ampdoctor.record.twin.mode import TwinMode
from ampdoctor.record.twin.place import Places
from tests.record.twin.reference import RealStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.record.twin.counterfactual import Counterfactual
    from tests.record.twin.setting import Setting
    from tests.record.twin.training import Case, Parameters


@dataclass
class TwinnedStep(RealStep):
    """A real step, and by counterfactual the gradients of its twins; sparse ones are made dense."""

    carried: list[CarriedTwin] = field(default_factory=list)
    scale: float = 1.0
    twins: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._mode = TwinMode(self.carried, Places(lines=False), self.errors.append)

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        """See every operation, and start the backward passes of twins at another scale from another seed."""
        original = torch.autograd.backward

        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
            # Reentrant checkpointing calls it again, from inside a backward pass.
            outermost = torch._C._current_graph_task_id() == -1
            for twin in self.carried:
                wanted = twin.counterfactual.loss_scale
                if outermost and wanted is not None:
                    twin.seed([grad_tensors], wanted / self.scale)
            original(tensors, grad_tensors, *args, **kwargs)
            for twin in self.carried:
                if outermost:
                    twin.seed_taken()

        with patch("torch.autograd.backward", backward), self._mode:
            yield

    def before_optimizer(self, optimizer: torch.optim.Optimizer, parameters: Parameters) -> None:
        """Copy the gradients of the run and of its twins."""
        self._mode.on = False
        super().before_optimizer(optimizer, parameters)
        for twin in self.carried:
            found = self.twins.setdefault(twin.counterfactual.name, {})
            for name, parameter in parameters.items():
                if parameter.grad is not None:
                    found[name] = twin_gradient(twin, parameter.grad)
        self._mode.on = not self.errors


def twin_gradient(twin: CarriedTwin, gradient: torch.Tensor) -> torch.Tensor:
    """Return what the gradient is in the twin's world, as a dense tensor of its own."""
    if gradient.is_sparse:
        values = twin.values(gradient._values())
        sparse = torch.sparse_coo_tensor(
            gradient._indices(), values, gradient.shape, check_invariants=False
        )  # fmt: skip
        return sparse.to_dense()
    return twin.values(gradient).detach().clone()


def twinned_step(
    case: Case, setting: Setting, counterfactuals: Sequence[Counterfactual], seed: int = 0, *, steps_before: int = 0
) -> TwinnedStep:
    """Run a step of `case` in `setting` with twins beside it."""
    training = case.start(seed)
    for _ in range(steps_before):
        training.run_step(setting)
    step = TwinnedStep(carried=[CarriedTwin(c) for c in counterfactuals], scale=setting.scale)
    step.losses = training.run_step(setting, step)
    return step
