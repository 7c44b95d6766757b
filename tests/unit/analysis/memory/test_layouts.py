"""The same step in other layouts, worked out from the recorded one."""

from __future__ import annotations

import pytest

from ampdoctor.analysis.memory.layouts import Layout, layouts, own_layout
from ampdoctor.analysis.memory.ledgers import ledgers
from ampdoctor.analysis.memory.saved import saved_sentence
from ampdoctor.finding import Grade
from ampdoctor.trace.builder import RunBuilder
from tests.unit.analysis.memory.runs import HALF, KIB, MIB, amp_run


def _layouts(run: RunBuilder) -> dict[str, Layout]:
    built = run.build()
    (ledger,) = ledgers(built).values()
    return {layout.name: layout for layout in layouts(built, ledger)}


def _bytes(layout: Layout, component: str) -> int:
    return layout.components[component].bytes


def test_an_autocast_run_in_fp32() -> None:
    found = _layouts(amp_run())
    own, fp32 = found["amp-bf16"], found["fp32"]
    assert own.own
    assert own.grade is Grade.OBSERVED
    assert fp32.grade is Grade.ESTIMATED
    # Half results double, the second cast of a norm's result is no more, FP32 ones stay.
    per_block = 2 * (MIB + MIB + 256 * KIB) + 512 * KIB + KIB
    assert _bytes(fp32, "activations") == 2 * per_block + 3 * MIB
    assert _bytes(fp32, "autocast_cache") == 0
    for component in ("weights", "gradients", "optimizer", "buffers"):
        assert fp32.components[component] == own.components[component]
        assert fp32.components[component].grade is Grade.OBSERVED
    assert fp32.components["activations"].grade is Grade.ESTIMATED


def test_an_autocast_run_in_the_other_half_is_the_same() -> None:
    found = _layouts(amp_run())
    assert found["amp-fp16"].components == found["amp-bf16"].components
    assert not found["amp-fp16"].own


def test_an_autocast_run_in_pure_bf16() -> None:
    found = _layouts(amp_run())["pure-bf16"]
    assert _bytes(found, "weights") == MIB // 2
    assert _bytes(found, "gradients") == MIB // 2
    assert _bytes(found, "optimizer") == MIB + 40  # both moments halve, the counts of steps do not
    # The FP32 sums halve, and so do the norms' statistics; the loss is taken to stay FP32.
    assert _bytes(found, "activations") == 2 * (2 * MIB + 256 * KIB + 256 * KIB + KIB // 2) + 3 * MIB
    assert _bytes(found, "autocast_cache") == 0


def test_an_fp32_run_under_autocast() -> None:
    run = RunBuilder().step().module("embed", type="Embedding").module("fc")
    run.tensor("embed", "weight", slot="weight", exponents={0: 1000}, shape=[100, 10])
    run.tensor("fc", "weight", slot="weight", exponents={0: 200}, shape=[10, 20])
    run.tensor("fc", "weight", slot="bias", exponents={0: 20}, shape=[20])
    run.memory("forward", "weights", 4880)
    run.memory("forward", "activations", 800, kind="aten.addmm", module="fc")
    run.memory("forward", "activations", 400, kind="aten.embedding", module="embed")
    found = _layouts(run)
    assert found["fp32"].own
    assert _bytes(found["amp-bf16"], "activations") == 400 + 400
    assert _bytes(found["amp-bf16"], "autocast_cache") == 2 * 200  # of matrices that are multiplied by
    assert _bytes(found["amp-bf16"], "weights") == 4880


@pytest.mark.parametrize(
    ("weights", "master", "name"),
    [
        (HALF, False, "pure-bf16"), (HALF, True, "bf16-master"), ("float16", True, "fp16-master"),
        ("float16", False, "pure-fp16"),
    ],
)  # fmt: skip
def test_half_weights(weights: str, master: bool, name: str) -> None:
    run = RunBuilder().step().memory("forward", "weights", 100, dtype=weights)
    if master:
        run.memory("forward", "master_weights", 200)
    (ledger,) = ledgers(run.build()).values()
    assert own_layout(ledger) == name
    found = _layouts(run)
    assert found[name].own
    assert found[name].peak_bytes == (300 if master else 100)
    assert found["fp32"].peak_bytes == 200  # the weights themselves, without masters


def test_a_sentence_says_what_shrank_and_what_could_not() -> None:
    assert saved_sentence(_layouts(amp_run()).values()) == (
        "Autocast saves 3.5 MiB of 17 MiB, 20.6 % (estimated): activations 4 MiB less, half copies of weights 512 KiB "
        "more. Weights, gradients and optimizer state stay FP32 under autocast: 4 MiB, 29.6 % of what is left."
    )


def test_a_sentence_says_when_autocast_takes_more() -> None:
    run = RunBuilder().step().memory("forward", "weights", MIB)
    run.memory("forward", "autocast_cache", MIB // 2, dtype=HALF)
    assert saved_sentence(_layouts(run).values()).startswith(
        "Autocast takes 512 KiB more than FP32 (estimated): half copies of weights 512 KiB more."
    )
