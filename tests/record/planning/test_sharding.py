"""What one rank of eight keeps."""

from __future__ import annotations

from tests.record.planning.models import HIDDEN, IN, OUT, PARAMETERS, Transformer, planned, transformer

RANKS = 8
PART = IN * HIDDEN // 8 + HIDDEN // 8 + HIDDEN * OUT // 8 + 2
"""Elements of one rank's part: 1024, 16, 160, and of the last bias's ten 1.25, rounded up."""

COUNTERS = 4 * 4


def test_zero1_spreads_master_copies_and_optimizer_state() -> None:
    end = planned(layout="zero1", world_size=RANKS).ends["step"]
    assert (end["weights"], end["gradients"]) == (2 * PARAMETERS, 2 * PARAMETERS)
    assert (end["master_weights"], end["optimizer"]) == (4 * PART, 8 * PART + COUNTERS)


def test_zero2_spreads_gradients_too() -> None:
    memory = planned(layout="zero2", world_size=RANKS)
    assert memory.ends["backward"]["gradients"] == 2 * PART
    assert memory.ends["step"]["weights"] == 2 * PARAMETERS


def test_zero3_spreads_weights_too() -> None:
    memory = planned(layout="zero3", world_size=RANKS)
    for phase in ("forward", "backward", "step"):
        assert memory.ends[phase]["weights"] == 2 * PART
    assert memory.ends["step"]["temporary"] <= 64 * 1024  # the batch: no whole weight is left


def test_zero3_gathers_one_module_at_a_time() -> None:
    spread = planned(transformer, "zero3", "sgd", 1, world_size=1 << 20)
    largest = max(sum(p.numel() for p in m.parameters(recurse=False)) for m in Transformer().modules())
    whole = planned(transformer, "zero2", "sgd", 1, world_size=1 << 20)
    every = 2 * sum(p.numel() for p in Transformer().parameters())
    # All weights but those of at most one module are elsewhere.
    saved = whole.peaks["forward"] - spread.peaks["forward"]
    assert every - 2 * largest <= saved < every


def test_a_world_of_one_rank_is_that_without_sharding() -> None:
    alone = planned(layout="zero1", world_size=1)
    assert alone.ends == planned(layout="bf16-master").ends
