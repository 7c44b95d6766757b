"""Bytes of optimizer state and gradients, exactly."""

from __future__ import annotations

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.planning.eight_bit import BLOCK
from ampdoctor.record.planning.optimizers import OPTIMIZERS, optimizer_named
from tests.record.planning.models import HIDDEN, IN, OUT, PARAMETERS, planned

COUNTERS = 4 * 4

STATES = {
    "adamw": 8 * PARAMETERS + COUNTERS,
    "adamw-fused": 8 * PARAMETERS + COUNTERS,
    "adam": 8 * PARAMETERS + COUNTERS,
    "adam-fused": 8 * PARAMETERS + COUNTERS,
    "sgd": 0,
    "sgd-momentum": 4 * PARAMETERS,
    # Matrices: a mean for each row and for each column; vectors: one for each element.
    "adafactor": 4 * (HIDDEN + IN) + 4 * (OUT + HIDDEN) + 4 * (HIDDEN + OUT) + COUNTERS,
    # The first weight alone has 4096 elements: two bytes each, and two FP32 scales a block. The others keep FP32.
    "adamw-8bit": (2 * IN * HIDDEN + 2 * 4 * IN * HIDDEN // BLOCK) + 8 * (HIDDEN + HIDDEN * OUT + OUT),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_and_gradients(name: str) -> None:
    end = planned(optimizer=name).ends["step"]
    assert end["optimizer"] == STATES[name]
    assert end["gradients"] == 4 * PARAMETERS


def test_an_unknown_optimizer_lists_the_known_ones() -> None:
    with pytest.raises(AmpDoctorError, match="unknown optimizer 'lion'") as error:
        optimizer_named("lion")
    assert all(name in error.value.hint for name in OPTIMIZERS)
