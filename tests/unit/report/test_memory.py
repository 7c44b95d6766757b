"""Where memory went, as text and as JSON."""

from __future__ import annotations

import json
from typing import Any

from ampdoctor.analysis.memory.advice import advice
from ampdoctor.analysis.memory.layouts import layouts
from ampdoctor.analysis.memory.ledgers import ledgers
from ampdoctor.report.memory import document, page
from ampdoctor.trace.builder import RunBuilder
from tests.unit.analysis.memory.runs import MIB, amp_run

PROMISED = {
    "weights", "master_weights", "gradients", "optimizer", "activations", "autocast_cache", "temporary",
}  # fmt: skip

TEXT = """\
Step 0: 13.5 MiB at the peak on cpu.
Run   runs/a

                        after forward  after backward  after step       peak
weights                         1 MiB           1 MiB       1 MiB      1 MiB
gradients                           -           1 MiB       1 MiB      1 MiB
optimizer state                 2 MiB           2 MiB       2 MiB      2 MiB
activations                     9 MiB               -           -      9 MiB
half copies of weights        512 KiB               -           -    512 KiB
buffers                       8 bytes         8 bytes     8 bytes    8 bytes
temporaries                 100 bytes               -           -  100 bytes
all                          12.5 MiB           4 MiB       4 MiB   13.5 MiB

peak, largest first
█████████████           66.7 %       9 MiB  activations
███████                 37.0 %       5 MiB    BF16
█                        7.4 %       1 MiB      blocks.0.fc
█                        7.4 %       1 MiB      blocks.0.act
█                        7.4 %       1 MiB      blocks.1.fc
█                        7.4 %       1 MiB      blocks.1.act
                         1.9 %     256 KiB      blocks.0.q
                         1.9 %     256 KiB      blocks.0.k
█                        3.7 %     512 KiB      and 2 more
██████                  29.6 %       4 MiB    FP32
████                    22.2 %       3 MiB      outside of modules
█                        3.7 %     512 KiB      blocks.0
█                        3.7 %     512 KiB      blocks.1
                      < 0.01 %       1 KiB      blocks.0.ln
                      < 0.01 %       1 KiB      blocks.1.ln
███                     14.8 %       2 MiB  optimizer state
█                        7.4 %       1 MiB    exp_avg FP32
█                        7.4 %       1 MiB    exp_avg_sq FP32
                      < 0.01 %    40 bytes    step FP32
█                        7.4 %       1 MiB  weights FP32
█                        7.4 %       1 MiB  gradients FP32
█                        3.7 %     512 KiB  half copies of weights BF16
                      < 0.01 %   100 bytes  temporaries FP32
                      < 0.01 %     8 bytes  buffers int64

the same step in             fp32   amp-fp16  amp-bf16 (run)  pure-bf16
peak                      ~17 MiB  ~13.5 MiB        13.5 MiB    ~10 MiB
weights                     1 MiB      1 MiB           1 MiB   ~512 KiB
gradients                   1 MiB      1 MiB           1 MiB   ~512 KiB
optimizer state             2 MiB      2 MiB           2 MiB     ~1 MiB
activations               ~13 MiB      9 MiB           9 MiB     ~8 MiB
half copies of weights          -    512 KiB         512 KiB          -
buffers                   8 bytes    8 bytes         8 bytes    8 bytes
temporaries             100 bytes  100 bytes       100 bytes  100 bytes
~ estimated from what was recorded; all else was observed, and stays the same there.

Autocast saves 3.5 MiB of 17 MiB, 20.6 % (estimated): activations 4 MiB less, half copies of weights
512 KiB more. Weights, gradients and optimizer state stay FP32 under autocast: 4 MiB, 29.6 % of what
is left.

What would take less (estimated)
- Checkpoint `blocks.0`, `blocks.1` (torch.utils.checkpoint): saves 3 MiB of the 6 MiB that they
  keep for the backward pass. Costs their forward pass once more: 4 ms, 50.0 % of the operations'
  time.
- The largest activation is the logits' log-softmax, 3 MiB; its gradient is as large. A fused or
  chunked linear cross-entropy (Liger Kernel, torchtune, Apple's cut-cross-entropy) never holds all
  of it; a smaller vocabulary, fewer tokens or `ignore_index` rows dropped before the head shrink
  it.
- Keep the optimizer's state (`exp_avg`, `exp_avg_sq`: 2 MiB of FP32) in 8 bits (bitsandbytes,
  torchao): saves 1.5 MiB. In BF16 it would be 1 MiB less, with small updates of `exp_avg_sq` lost.
- 3 MiB of activations stay FP32 because the code hands `_log_softmax` FP32; in half they would be
  1.5 MiB less.
- 1 MiB of activations stay FP32 because `add` takes an FP32 tensor beside a half one, and so gives
  FP32 (`blocks.0` and 1 other); in half they would be 512 KiB less.
- 512 KiB are half copies of activations that are kept too, or were cast before (`blocks.0.k` and 1
  other): cast once, before what they go to (`x = x.to(dtype)`), and hand on the result.
"""


def _text(run: RunBuilder, phase: str = "peak") -> str:
    built = run.build()
    (ledger,) = ledgers(built).values()
    return page(ledger, phase, layouts(built, ledger), advice(built, ledger), built.paces, "runs/a").plain()


def _document(run: RunBuilder) -> dict[str, Any]:
    built = run.build()
    (ledger,) = ledgers(built).values()
    found: dict[str, Any] = json.loads(
        document(ledger, layouts(built, ledger), advice(built, ledger), built.paces, "runs/a")
    )
    return found


def test_text() -> None:
    assert _text(amp_run()) == TEXT


def test_a_tree_of_another_moment() -> None:
    lines = _text(amp_run(), "backward").splitlines()
    tree = lines[lines.index("after backward, largest first") + 1 :]
    assert [line.split()[-2:] for line in tree[:2]] == [["optimizer", "state"], ["exp_avg", "FP32"]]


def test_small_entries_are_folded() -> None:
    run = RunBuilder().step()
    for number in range(9):
        run.memory("peak", "activations", 1000 + number, kind="aten.mm", module=f"fc{number}")
    text = _text(run)
    assert "fc8" in text
    assert "fc2" not in text
    assert "and 3 more" in text


def test_on_cuda_nothing_is_hidden() -> None:
    run = RunBuilder().step()
    for phase in ("forward", "step", "peak"):
        run.memory(phase, "weights", 3 * MIB, device="cuda:0")
    for phase, allocated, reserved in (("forward", 4 * MIB, 20 * MIB), ("step", 2 * MIB, 20 * MIB)):
        run.memory(phase, "allocated", allocated, device="cuda:0", dtype=None)
        run.memory(phase, "reserved", reserved, device="cuda:0", dtype=None)
    lines = _text(run).splitlines()
    rows = {line[:20].strip(): line[20:].split("  ") for line in lines}
    assert [cell.strip() for cell in rows["unattributed"] if cell.strip()] == ["1 MiB", "-1 MiB", "?"]
    assert [cell.strip() for cell in rows["reserved, not in use"] if cell.strip()] == ["16 MiB", "18 MiB", "?"]
    assert "The allocator was at its highest before this step" in _text(run)
    phases = _document(run)["phases"]
    assert phases["forward"]["unattributed_bytes"] == MIB
    assert phases["forward"]["overhead_bytes"] == 16 * MIB
    assert phases["peak"]["allocated_bytes"] is None


def test_json() -> None:
    found = _document(amp_run())
    assert list(found) == [
        "schema_version",
        "run",
        "step",
        "device",
        "phases",
        "layouts",
        "saved",
        "measured_kept",
        "advice",
    ]
    assert found["phases"]["peak"]["bytes"] == sum(found["phases"]["peak"]["components"].values())
    assert [layout["layout"] for layout in found["layouts"]] == ["fp32", "amp-fp16", "amp-bf16", "pure-bf16"]
    for layout in found["layouts"]:
        assert layout["peak_bytes"] == sum(layout["components"].values())
        assert layout["grade"] == ("observed" if layout["own"] else "estimated")
        assert layout["components"].keys() >= PROMISED
    assert {"name", "text", "saves_bytes", "costs_ms", "grade"} == set(found["advice"][0])


def test_what_was_executed_again_is_said_as_measured() -> None:
    run = amp_run()
    run.pace("fp32", kept_bytes=4 << 20).pace("bf16", own=True, kept_bytes=3 << 20)
    text = " ".join(_text(run).split())
    assert "FP32 4 MiB, BF16 autocast 3 MiB (measured; half copies of weights included)" in text
    assert _document(run)["measured_kept"] == {"fp32": 4 << 20, "bf16": 3 << 20}
