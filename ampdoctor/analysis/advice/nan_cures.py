"""What to do about a run that broke for other reasons than its precision, as code for the run at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampdoctor.analysis.advice.cures import comment, line_of, optimizer_type
from ampdoctor.analysis.calls.order import calls_named
from ampdoctor.finding import Fix, Grade

if TYPE_CHECKING:
    from ampdoctor.analysis.forward.nan_births import Kind
    from ampdoctor.analysis.forward.operations import Origin
    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import TensorRow


def lower_lr(run: Run) -> Fix:
    """Lower the learning rate, and warm it up."""
    lr = next((s.lr for s in run.steps if s.lr), None)
    kind = optimizer_type(run) or "AdamW"
    now = f"  # now {lr:g}" if lr else ""
    code = f"""\
optimizer = torch.optim.{kind}(model.parameters(), lr={(lr or 1e-3) / 10:g}){now}
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=500)"""
    return Fix(
        "Train at a tenth of the learning rate, and warm it up",
        code,
        "The loss falls from the start, or at least no longer grows; go on dividing by ten until it does.",
    )


def clip(run: Run) -> Fix:
    """Clip the gradients."""
    by_scaler = calls_named(run, "scaler_step")
    line = comment(line_of(run, "scaler_step", "optimizer_step"))
    unscale = "scaler.unscale_(optimizer)  # clipping must see the gradients themselves\n"
    step = "scaler.step(optimizer)" if by_scaler else "optimizer.step()"
    code = f"""\
{unscale if by_scaler else ""}torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
{step}{line}"""
    return Fix(
        "Clip the gradients",
        code,
        "A single steep batch can no longer throw the weights away. It hides a learning rate that is too high for all.",
    )


def find_bad_samples(run: Run, every: int | None) -> list[Fix]:
    """Look for the samples that are not finite, and leave them out."""
    backward = line_of(run, "backward")
    round_of = f"  # a round of your data is probably {every} batches" if every else ""
    search = f"""\
for index, batch in enumerate(loader):{round_of}
    for tensor in batch:
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            print(index, (~torch.isfinite(tensor)).nonzero()[:5])"""
    check = f"""\
if not all(torch.isfinite(t).all() for t in batch if t.is_floating_point()):
    continue  # before the forward pass{f", which ends at {backward}" if backward else ""}"""
    return [
        Fix(
            "Find the samples that are not finite",
            search,
            "It names batch and position; clean them where the data is made.",
            Grade.OBSERVED,
        ),
        Fix(
            "Leave such batches out until then",
            check,
            "The other batches train as before; no loss scale and no format can make a NaN finite.",
            Grade.OBSERVED,
        ),
    ]


def guard(kind: Kind, origin: Origin | None) -> Fix:
    """Guard the operation that is not defined for its inputs."""
    head, _, rest = kind.code.partition("\n")
    source = origin.source if origin is not None else None
    line = f"# {source}\n" if source else ""
    return Fix(kind.title, line + head + (f"\n{rest}" if rest else ""), kind.expected)


def load_again(row: TensorRow) -> list[Fix]:
    """Mend the weights before training."""
    code = f"""\
for name, tensor in model.state_dict().items():
    if tensor.is_floating_point() and not torch.isfinite(tensor).all():
        print(name)  # `{row.site}` is one of them"""
    return [
        Fix(
            "Find out where these weights come from",
            code,
            "After the model is built and after each checkpoint is loaded: the first that prints is the culprit.",
            Grade.OBSERVED,
        )
    ]


def look_at_the_batch(step: int) -> Fix:
    """Stop at the operation that makes the first NaN."""
    code = f"""\
torch.autograd.set_detect_anomaly(True)  # slow: for this search only
for name, tensor in {{"inputs": inputs, "targets": targets}}.items():
    assert torch.isfinite(tensor).all(), f"{{name}} of step {step}\""""
    return Fix(
        f"Look at the batch of step {step}, and at what the loss divides by",
        code,
        "It stops at the data that is not finite, or at the operation that makes a NaN of it.",
        Grade.OBSERVED,
    )
