"""The precision that a run really used, in one sentence and module by module."""

from __future__ import annotations

from dataclasses import asdict

from ampdoctor.precision import precision_used
from ampdoctor.trace.builder import RunBuilder


def _module(run: RunBuilder, name: str, dtype: str, autocast: str | None = None, **columns: object) -> None:
    run.module(name, **columns)
    run.tensor(name, "activation", dtype=dtype, autocast=autocast, exponents={0: 9})


def test_fp16_autocast_without_scaling() -> None:
    run = RunBuilder().step().optimizer("AdamW")
    _module(run, "body", "float16", "float16")
    _module(run, "norm", "float32", "float16")
    run.tensor("body", "weight_grad", slot="weight", exponents={0: 9})
    used = precision_used(run.build())
    assert used.sentence == "FP16 autocast in 1 of 2 modules, FP32 weights, no loss scaling"
    assert used.loss_scaling == "none"
    body = used.modules[0]
    assert (body.module, body.autocast, body.activations) == ("body", "float16", ("float16",))
    assert (body.parameters, body.gradients) == (("float32",), ("float32",))


def test_a_run_believed_to_be_half_is_told_to_be_fp32() -> None:
    run = RunBuilder().step().optimizer("SGD").scaler("seen", enabled=False)
    _module(run, "body", "float32")
    _module(run, "head", "float32")
    sentence = precision_used(run.build()).sentence
    assert sentence == "FP32 in all 2 modules, FP32 weights, a GradScaler that is disabled"


def test_a_teacher_without_gradients_does_not_dilute_what_trains() -> None:
    run = RunBuilder().step().optimizer("SGD")
    for name in ("a", "b"):
        _module(run, f"student.{name}", "float16", "float16")
        run.module(f"teacher.{name}", trainable=0)
        run.tensor(f"teacher.{name}", "activation", exponents={0: 9}, grad_enabled=False)
    used = precision_used(run.build())
    assert used.sentence.startswith("FP16 autocast in 2 of 2 modules")
    assert len(used.modules) == 4


def test_half_weights_without_autocast_and_a_frozen_backbone() -> None:
    run = RunBuilder().step()
    _module(run, "backbone", "bfloat16", dtypes=["bfloat16"], trainable=0)
    _module(run, "adapter", "float32")
    sentence = precision_used(run.build()).sentence
    assert sentence == ("BF16 without autocast in 1 of 2 modules, FP32 weights (BF16 where frozen), no loss scaling")


def test_two_formats_are_both_told() -> None:
    run = RunBuilder().step().optimizer("SGD")
    for name, dtype in (("a", "float16"), ("b", "float16"), ("c", "bfloat16")):
        _module(run, name, dtype, dtype)
    sentence = precision_used(run.build()).sentence
    assert sentence.startswith("FP16 autocast in 2 of 3 modules, BF16 autocast in 1 of 3 modules, ")


def test_containers_and_index_tensors_are_not_counted() -> None:
    run = RunBuilder().step().optimizer("SGD")
    _module(run, "", "float16", leaf=False)
    _module(run, "ids", "int64")
    _module(run, "head", "float16", "float16")
    assert "FP16 autocast in 1 of 1 module," in precision_used(run.build()).sentence


def test_dynamic_scaling_shows_where_the_scale_went() -> None:
    run = RunBuilder().step(loss_scale=65536.0).optimizer("SGD")
    run.scaler("seen", enabled=True, scale=65536.0, growth_interval=2000)
    run.scaler("backoff", scale=65536.0, scale_after=32768.0)
    used = precision_used(run.build())
    assert used.sentence.endswith("dynamic loss scaling from 65536 (2^16) to 32768 (2^15)")
    assert used.loss_scaling == "dynamic"


def test_with_nothing_recorded_nothing_is_claimed() -> None:
    used = precision_used(RunBuilder().build())
    assert used.sentence == "no activation recorded, no loss scaling"
    assert used.modules == ()


def test_parameters_that_no_module_holds() -> None:
    run = RunBuilder().step().tensor("", "weight_grad", slot="w1", exponents={0: 9})
    assert precision_used(run.build()).sentence == "no activation recorded, FP32 weights, no loss scaling"


def test_a_wrapper_in_the_place_of_the_only_module() -> None:
    run = RunBuilder().step().optimizer("SGD")
    _module(run, "", "float32", leaf=False)
    assert precision_used(run.build()).sentence == "FP32 in all 1 module, FP32 weights, no loss scaling"


def test_it_is_plain_data() -> None:
    run = RunBuilder().step()
    _module(run, "head", "float16", "float16")
    assert asdict(precision_used(run.build()))["modules"][0]["activations"] == ("float16",)
