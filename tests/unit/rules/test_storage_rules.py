"""Rules about what is stored in half, beyond their examples: which is the cause, what is left alone, the numbers."""

from __future__ import annotations

import math

import pytest

from ampdoctor.analysis.storage.second_moments import second_moments
from ampdoctor.engine import diagnose
from ampdoctor.finding import Severity
from ampdoctor.formats import format_of_dtype
from ampdoctor.rules.adam_eps_underflow import AdamEpsUnderflow
from ampdoctor.rules.bf16_metric_accumulator import Bf16MetricAccumulator
from ampdoctor.rules.ema_half_stuck import EmaHalfStuck
from ampdoctor.rules.half_grad_accumulation import HalfGradAccumulation
from ampdoctor.rules.lost_updates import LostUpdates
from ampdoctor.rules.master_weights_missing import MasterWeightsMissing
from ampdoctor.rules.optimizer_state_half import OptimizerStateHalf
from ampdoctor.trace.builder import RunBuilder


def _lost(autocast: str | None, kind: str = "AdamW", small: int = 940, run: RunBuilder | None = None) -> RunBuilder:
    run = run or RunBuilder(device="cuda: NVIDIA A100")
    for step in range(4):
        run.step(loss=0.3)
        if step == 0:
            run.module("body", dtypes=["bfloat16"]).optimizer(kind, dtypes=["bfloat16"])
        run.tensor("body", "activation", dtype="bfloat16", exponents={-1: 64}, autocast=autocast)
        run.tensor(
            "body", "update", slot="weight", dtype="bfloat16", exponents={-17: 60}, zeros=940,
            expected_to_move=1000, unchanged=940, energy_unchanged=0.94, small_updates=small, small_updates_moved=0,
        )  # fmt: skip
    return run


def test_lost_updates_follow_from_missing_master_weights() -> None:
    diagnosis = diagnose(_lost("bfloat16").build(), rules=[MasterWeightsMissing(), LostUpdates()])
    (root,) = diagnosis.findings
    assert root.name == "master-weights-missing"
    assert [c.name for c in root.consequences] == ["lost-updates"]


def test_without_autocast_lost_updates_stand_by_themselves() -> None:
    diagnosis = diagnose(_lost(None).build(), rules=[MasterWeightsMissing(), LostUpdates()])
    assert [f.name for f in diagnosis.findings] == ["lost-updates"]


def test_an_optimizer_that_may_keep_what_rounding_takes_is_a_note() -> None:
    run = _lost("bfloat16", kind="Mine", small=0).build()
    (finding,) = MasterWeightsMissing().check(run)
    assert finding.severity is Severity.NOTE


def test_a_class_of_another_package_is_not_known_by_its_name() -> None:
    run = _lost(None, kind="torchao.optim.AdamW", small=0).build()
    (finding,) = LostUpdates().check(run)
    assert finding.severity is Severity.NOTE
    assert "Whether AdamW rounds stochastically" in finding.evidence[-1].text
    (known,) = LostUpdates().check(_lost(None, small=0).build())
    assert known.severity is Severity.ERROR


def test_the_optimizer_of_the_weights_themselves_is_asked() -> None:
    first = RunBuilder().optimizer("SGD", optimizer="optimizer9")
    (finding,) = LostUpdates().check(_lost(None, kind="torchao.optim.AdamW", small=0, run=first).build())
    assert finding.severity is Severity.NOTE
    first = RunBuilder().optimizer("torchao.optim.AdamW", optimizer="optimizer9")
    (finding,) = LostUpdates().check(_lost(None, small=0, run=first).build())
    assert finding.severity is Severity.ERROR


def _broken(
    *,
    eps: float | None,
    state: str = "float16",
    kind: str = "Mine",
    cosine: float = 0.99,
    run: RunBuilder | None = None,
) -> RunBuilder:
    run = (run or RunBuilder()).step(loss=0.7)
    run.module("body", dtypes=["float16"]).optimizer(kind, eps=eps, dtypes=["float16"])
    run.tensor("body", "weight_grad", slot="weight", dtype="float16", exponents={-14: 100})
    run.tensor("body", "update", slot="weight", dtype="float16", posinf=30, exponents={-9: 70})
    run.tensor("body", "optimizer_state", slot="weight.m", dtype=state, zeros=30, exponents={-17: 70})
    v = {"slot": "weight.v", "dtype": state, "zeros": 30, "square_cosine": cosine}
    run.tensor("body", "optimizer_state", exponents={-24: 70}, **v)  # type: ignore[arg-type]
    return run  # fmt: skip


def test_a_second_moment_by_any_other_name_is_known_by_its_first_step() -> None:
    (finding,) = AdamEpsUnderflow().check(_broken(eps=1e-8, kind="my.optim.Mine").build())
    assert finding.summary.startswith("Mine breaks FP16 weights: after step 0 30 weights are NaN or infinite")
    assert "`v` is in FP16" in next(e.text for e in finding.evidence if e.name == "zero_state")
    assert "optimizer = Mine(" in finding.fixes[0].code


def test_an_optimizer_without_an_eps_divides_by_nothing_known() -> None:
    assert list(AdamEpsUnderflow().check(_broken(eps=None).build())) == []


def test_state_that_is_not_the_square_of_the_gradient_is_no_divisor() -> None:
    assert list(AdamEpsUnderflow().check(_broken(eps=1e-8, cosine=0.9).build())) == []


def test_the_eps_of_another_optimizer_is_not_to_blame() -> None:
    run = _broken(eps=1e-4).module("head", optimizer="optimizer1")
    run.optimizer("Adam", optimizer="optimizer1", eps=1e-8, dtypes=["float16"])
    assert list(AdamEpsUnderflow().check(run.build())) == []


def test_the_optimizer_of_the_parameter_itself_is_named() -> None:
    run = RunBuilder().optimizer("SGD", optimizer="optimizer9", dtypes=["float16"])
    (finding,) = AdamEpsUnderflow().check(_broken(eps=1e-8, run=run).build())
    assert finding.summary.startswith("Mine breaks")


def test_state_in_fp32_is_not_to_blame() -> None:
    assert list(AdamEpsUnderflow().check(_broken(eps=1e-8, state="float32").build())) == []


def _state(
    squares: list[float], values: list[float], *, unchanged: int = 100, every: int = 100, dtype: str = "bfloat16"
) -> RunBuilder:
    """A second moment in half on steps 0, 100, 200 …: g² and what it holds."""
    run = RunBuilder()
    for step in range(every * (len(squares) - 1) + 1):
        run.step(loss=0.3)
        if step % every == 0:
            square, value = squares[step // every], values[step // every]
            run.tensor(
                "body", "optimizer_state", slot="weight.exp_avg_sq", dtype=dtype, exponents={-10: 100},
                rms=value, expected_to_move=100, unchanged=unchanged if step else 0, square_cosine=1.0,
                square_ratio=square / value,
            )  # fmt: skip
    return run


def test_what_fp32_would_hold_is_worked_out() -> None:
    # It is 1 at step 100 and stays so for 400 steps, though next to nothing comes in.
    run = _state([1000.0, 0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0])
    (moment,) = second_moments(run.build())
    assert moment.beta2 == pytest.approx(0.999)
    assert not moment.can_decay
    assert moment.excess == pytest.approx(0.999**-300, rel=1e-3)
    (finding,) = OptimizerStateHalf().check(run.build())
    assert finding.location.first_step == 100


def _rounded(value: float, eps: float) -> float:
    place = 2.0 ** math.floor(math.log2(value)) * eps
    return round(value / place) * place


@pytest.mark.parametrize(
    ("dtype", "beta2", "start", "sticks_at"),
    [("bfloat16", 0.997, 1.9, 1.297), ("float16", 0.9996, 1.9, 1.22)],
    ids=["BF16 with 0.997", "FP16 with 0.9996"],
)
def test_between_half_places_a_value_comes_down_to_where_it_sticks(
    dtype: str, beta2: float, start: float, sticks_at: float
) -> None:
    number_format = format_of_dtype(dtype)
    assert number_format is not None
    value, values = _rounded(start, number_format.eps), []
    for _ in range(4001):
        values.append(value)
        value = _rounded(beta2 * value, number_format.eps)
    assert value == pytest.approx(sticks_at, abs=2e-3)
    assert value == values[-1]
    squares = [values[0] / (1.0 - beta2)] + [0.0] * 20
    every = 200
    run = _state(squares, values[::every], every=every, dtype=dtype)
    (moment,) = second_moments(run.build())
    assert not moment.can_decay
    assert moment.held == 1.0
    assert [f.name for f in OptimizerStateHalf().check(run.build())] == ["optimizer-state-half"]
    # With rounding that lets it move, the same beta2 is no fault.
    moved = _state(squares, values[::every], unchanged=0, every=every, dtype=dtype)
    assert list(OptimizerStateHalf().check(moved.build())) == []


@pytest.mark.parametrize(
    ("dtype", "beta2", "decays"),
    [
        ("bfloat16", 0.996, True),
        ("bfloat16", 0.9962, False),
        ("bfloat16", 0.999, False),
        ("float16", 0.9995, True),
        ("float16", 0.9996, False),
    ],
)
def test_every_value_decays_from_half_an_eps_on(dtype: str, beta2: float, decays: bool) -> None:
    run = _state([1.0 / (1.0 - beta2), 0.0, 0.0], [1.0, 1.0, 1.0], dtype=dtype)
    (moment,) = second_moments(run.build())
    assert moment.can_decay is decays


def test_a_second_moment_that_should_be_larger_is_none_of_this() -> None:
    run = _state([1000.0, 5.0, 5.0, 5.0], [1.0, 1.0, 1.0, 1.0])
    assert list(OptimizerStateHalf().check(run.build())) == []


def test_a_mask_that_never_changes_is_no_second_moment() -> None:
    run = RunBuilder()
    for _ in range(6):
        run.step(loss=0.3).tensor(
            "body", "optimizer_state", slot="weight.mask", dtype="bfloat16", exponents={0: 100},
            expected_to_move=100, unchanged=100, square_cosine=0.4, square_ratio=1e-3,
        )  # fmt: skip
    assert second_moments(run.build()) == ()


def test_missing_micro_batches_are_told_in_times() -> None:
    run = RunBuilder().step(loss=0.3, micro_batches=1600)
    run.tensor(
        "body", "weight_grad", slot="weight", dtype="bfloat16", exponents={8: 100}, additions=1599,
        sum_cosine=1.0, sum_norm_ratio=0.32,
    )  # fmt: skip
    (finding,) = HalfGradAccumulation().check(run.build())
    assert finding.severity is Severity.ERROR
    assert "after 1600 micro-batches the gradient of `body.weight` has 32.0 %" in finding.summary
    assert "3.12 times as long" in finding.evidence[0].text


def _average(**columns: object) -> RunBuilder:
    run = RunBuilder()
    for _ in range(4):
        run.step(loss=0.3, totals_watched=True).accumulator("average", **columns)
    return run


STUCK = {"absorbed": 99, "energy_absorbed": 0.99, "increment": 1e-5, "rate": 0.001}


def test_a_codebook_is_an_average_too() -> None:
    (finding,) = EmaHalfStuck().check(_average(**STUCK).build())
    assert finding.location.source is None


def test_an_average_of_one_number_or_of_gradients_is_not() -> None:
    scalar = STUCK | {"numel": 1, "nonzero": 1, "absorbed": 1}
    assert list(EmaHalfStuck().check(_average(**scalar).build())) == []
    assert list(EmaHalfStuck().check(_average(**STUCK, added="gradient").build())) == []


def test_fp16_resolves_a_decay_of_099() -> None:
    assert list(EmaHalfStuck().check(_average(**STUCK | {"rate": 0.01}, dtype="float16").build())) == []  # fmt: skip
    assert list(EmaHalfStuck().check(_average(**STUCK | {"rate": 0.01}).build()))


def test_a_total_that_is_made_in_each_step_is_missing_what_one_step_adds() -> None:
    run = RunBuilder()
    for step in range(300):
        run.step(loss=0.3, totals_watched=True)
        if step in (1, 3):
            run.accumulator(
                "sum", calls=600, totals=1, numel=600, nonzero=600, absorbed=300, energy_absorbed=0.5, increment=1.0,
                absmax=256.0, lasting=False,
            )  # fmt: skip
    (finding,) = Bf16MetricAccumulator().check(run.build())
    share = next(e.value for e in finding.evidence if e.name == "missing_share")
    assert share == pytest.approx(300 / 256)
