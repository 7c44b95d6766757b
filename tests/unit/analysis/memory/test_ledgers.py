"""The recorded memory of a step, by moment and component."""

from __future__ import annotations

from ampdoctor.analysis.memory.ledgers import ledgers
from ampdoctor.trace.builder import RunBuilder


def test_steps_phases_and_components() -> None:
    run = RunBuilder().step().memory("peak", "weights", 8).memory("forward", "weights", 8)
    run.memory("peak", "temporary", 16, dtype="int64")
    run.step().memory("forward", "weights", 8)
    found = ledgers(run.build())
    assert list(found) == [0, 1]
    assert found[0].phases == ["forward", "peak"]
    assert found[0].components("peak") == {"temporary": 16, "weights": 8}
    assert found[0].total("peak") == 24
    assert found[0].autocast is None


def test_on_a_cpu_the_allocator_is_not_asked() -> None:
    (found,) = ledgers(RunBuilder().step().memory("peak", "weights", 8).build()).values()
    assert (found.allocated("peak"), found.unattributed("peak"), found.overhead("peak")) == (None, None, None)


def test_what_the_allocator_says_is_compared_and_not_counted() -> None:
    run = RunBuilder().step().memory("step", "weights", 900, device="cuda:0")
    run.memory("step", "allocated", 1000, device="cuda:0", dtype=None)
    run.memory("step", "reserved", 4000, device="cuda:0", dtype=None)
    run.memory("step", "temporary", 10**6, device="cpu")  # a batch on the host
    (found,) = ledgers(run.build()).values()
    assert found.device == "cuda:0"
    assert found.total("step") == 900
    assert found.unattributed("step") == 100
    assert found.overhead("step") == 3000


def test_autocast_is_known_by_the_operations_or_by_the_copies_of_weights() -> None:
    by_operations = RunBuilder().step().memory("peak", "weights", 8).timing("aten.mm", autocast="float16")
    by_copies = RunBuilder().step().memory("peak", "autocast_cache", 8, dtype="bfloat16")
    assert [ledger.autocast for ledger in ledgers(by_operations.build()).values()] == ["float16"]
    assert [ledger.autocast for ledger in ledgers(by_copies.build()).values()] == ["bfloat16"]
