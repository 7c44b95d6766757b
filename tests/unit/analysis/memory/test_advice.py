"""What would take less, with its numbers."""

from __future__ import annotations

from ampdoctor.analysis.memory.advice import Advice, advice
from ampdoctor.analysis.memory.ledgers import ledgers
from ampdoctor.trace.builder import RunBuilder
from tests.unit.analysis.memory.runs import HALF, KIB, MIB, amp_run


def _advice(run: RunBuilder) -> dict[str, Advice]:
    built = run.build()
    (ledger,) = ledgers(built).values()
    found = advice(built, ledger)
    assert found == sorted(found, key=lambda a: -a.saves_bytes)
    return {a.name: a for a in reversed(found)}


def test_blocks_are_worth_checkpointing() -> None:
    found = _advice(amp_run().tensor("blocks.0", "activation", exponents={0: 1024}))["checkpoint"]
    block = 2 * MIB + 512 * KIB + 512 * KIB + KIB
    assert found.saves_bytes == block - 4096  # all but one of them, and the recorded output of one
    assert found.costs_ms == 4.0
    assert found.text.startswith("Checkpoint `blocks.0`, `blocks.1` (torch.utils.checkpoint): saves 3 MiB of the 6 MiB")
    assert "4 ms, 50.0 % of the operations' time" in found.text


def test_many_blocks_are_named_by_the_first_and_the_last() -> None:
    run = RunBuilder().step().memory("peak", "weights", MIB)
    for number in range(12):
        run.memory("forward", "activations", MIB, kind="aten.mm", module=f"model.layers.{number}.mlp.up")
    found = _advice(run)["checkpoint"]
    assert "`model.layers.0` to `model.layers.11` (12 modules)" in found.text
    assert found.saves_bytes == 11 * MIB
    assert found.costs_ms is None


def test_single_layers_in_a_list_are_not_blocks() -> None:
    run = RunBuilder().step().memory("peak", "weights", 100)
    for number in range(4):
        run.memory("forward", "activations", MIB, kind="aten.mm", module=str(number))
    assert "checkpoint" not in _advice(run)


def test_optimizer_state_in_8_bits() -> None:
    found = _advice(amp_run())["optimizer-state"]
    assert found.saves_bytes == 2 * MIB * 3 // 4
    assert "`exp_avg`, `exp_avg_sq`" in found.text
    eight_bit = RunBuilder().step().memory("peak", "optimizer", MIB, kind="state1", dtype="uint8")
    assert "optimizer-state" not in _advice(eight_bit)


def test_logits() -> None:
    found = _advice(amp_run())["logits"]
    assert found.saves_bytes == 3 * MIB
    small = RunBuilder().step().memory("forward", "activations", 10, kind="aten._log_softmax")
    small.memory("forward", "activations", 1000, kind="aten.mm", module="fc")
    assert "logits" not in _advice(small)


def test_what_stays_fp32_is_told_with_the_reason() -> None:
    built = amp_run("cuda:0").build()
    (ledger,) = ledgers(built).values()
    texts = [a.text for a in advice(built, ledger) if a.name == "fp32-activations"]
    assert texts == [
        (
            "3 MiB of activations stay FP32 because autocast has `_log_softmax` compute in FP32; in half they would be "
            "1.5 MiB less."
        ),
        (
            "1 MiB of activations stay FP32 because `add` takes an FP32 tensor beside a half one, and so gives FP32 "
            "(`blocks.0` and 1 other); in half they would be 512 KiB less."
        ),
    ]


def test_without_autocast_fp32_is_no_surprise() -> None:
    run = RunBuilder().step().memory("forward", "activations", MIB, kind="aten._softmax")
    assert "fp32-activations" not in _advice(run)


def test_casts_of_the_same_tensor() -> None:
    found = _advice(amp_run())["casts"]
    assert found.saves_bytes == 512 * KIB
    assert "(`blocks.0.k` and 1 other)" in found.text


def test_trifles_are_left_out() -> None:
    run = RunBuilder().step().memory("peak", "weights", 100 * MIB)
    run.memory("peak", "optimizer", MIB, kind="momentum_buffer")
    run.memory("forward", "activations", KIB, kind="aten.add", dtype=HALF)
    assert _advice(run) == {}
