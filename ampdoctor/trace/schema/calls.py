"""The table of the calls that matter to mixed precision."""

from __future__ import annotations

from dataclasses import dataclass

from ampdoctor.trace.schema.columns import BOOL, FLOAT, INT, STRING, STRINGS, nullable, required, table

STEPS = ("scaler_step", "optimizer_step")
"""The calls that make a step of an optimizer."""


@table("calls")
@dataclass(frozen=True, kw_only=True)
class CallRow:
    """One call that matters to mixed precision, with the line of the user's code that made it."""

    step: int = required(INT, "Step it belongs to.")
    micro_batch: int = required(INT, "Backward passes before it within the step.")
    seq: int = required(INT, "Order within the step.")
    call: str = required(
        STRING,
        "scale, backward, unscale, clip_norm, clip_value, scaler_step, optimizer_step, update, zero_grad, "
        "scheduler_step (of a learning rate scheduler, for its optimizer), load_state (load_state_dict of an optimizer "
        "or scaler), grad (torch.autograd.grad with create_graph), autocast_enter, autocast_exit (of a torch.autocast "
        "block, the first of each line on an examined step), threaded_call (another thread than the one that trains "
        "called a module with gradients on; examined steps), comm_hook (register_comm_hook of "
        "DistributedDataParallel; target: the hook), or "
        "exception (one that left an autocast block, a module or the script).",
    )
    target: str | None = nullable(
        STRING, "Scaler or optimizer it was called on or for; autocast: name of the block; threaded_call: the module."
    )
    file: str | None = nullable(STRING, "Source file of the caller outside torch.")
    line: int | None = nullable(INT, "Line of the caller.")
    function: str | None = nullable(STRING, "Function of the caller.")
    autocast: str | None = nullable(STRING, "Autocast dtype in force; null if off.")
    scaled: str | None = nullable(STRING, "backward: whether a scaler scaled all, some or none of what it starts from.")
    factor: float | None = nullable(
        FLOAT, "backward: product of the numbers the loss was multiplied by in code, scaler excluded."
    )
    largest_factor: float | None = nullable(
        FLOAT,
        "backward: the largest of those numbers; a hand-written loss scale shows in it where the loss is averaged too.",
    )
    optimizers: list[str] | None = nullable(
        STRINGS, "backward: optimizers whose parameters it reaches (examined steps)."
    )
    holding: list[str] | None = nullable(
        STRINGS,
        "backward: optimizers whose gradients were not zero when it began (examined steps, and the first pass after a "
        "skip).",
    )
    holding_nonfinite: list[str] | None = nullable(
        STRINGS, "backward: those of holding whose gradients held NaN or infinities."
    )
    penalty_undivided: bool | None = nullable(
        BOOL,
        "backward: gradients of a scaled loss, made by a pass with create_graph, are in this loss and were not divided "
        "by the scale on their way into it; null where there are none (examined steps).",
    )
    resized: float | None = nullable(
        FLOAT,
        "optimizer_step, scaler_step, unscale: size of the gradients over what the last scaled backward pass or "
        "clipping had left; 1/scale where code of the user's has divided them (examined steps).",
    )
    lr_before: float | None = nullable(FLOAT, "scheduler_step: learning rate of the first group before it.")
    lr_after: float | None = nullable(FLOAT, "scheduler_step: that rate after it.")
    base_lr: float | None = nullable(FLOAT, "scheduler_step: the rate that its schedule multiplies.")
    entries: int | None = nullable(
        INT, "load_state: parameters with a state in what was loaded; 0 where nothing was kept."
    )
    stale_casts: int | None = nullable(
        INT,
        "backward: half copies of trained weights in the graph that an earlier backward pass has met too, before the "
        "last step of the optimizer which trains them (examined steps).",
    )
    undefined: str | None = nullable(
        STRING,
        "backward: what makes its loss NaN or infinite in every format, of values that are all finite: div (by a count "
        "of zero), mean (of nothing), or a loss that averages over nothing (nll_loss); looked for where a loss on the "
        "host is not finite and the one before was.",
    )
    ratio_error: float | None = nullable(
        FLOAT,
        "backward: largest |r - 1| of the ratios r = exp(a - b) in the loss where b carries no gradient, outside "
        "modules; null where there are none (examined steps).",
    )
    device_type: str | None = nullable(STRING, "autocast: device type that it was made for.")
    dtype: str | None = nullable(
        STRING, "autocast: dtype that it was made for; threaded_call: dtype of the module's output."
    )
    asked: bool | None = nullable(
        BOOL, "autocast: enabled was True, also where torch switches it off for want of the device."
    )
    cache_enabled: bool | None = nullable(BOOL, "autocast: casts of weights are kept.")
    depth: int | None = nullable(INT, "autocast: blocks around it; 0 for an outermost one.")
    nodes: int | None = nullable(
        INT,
        "autocast_exit: operations within it that autograd recorded, casts of weights among them; 0 without gradients.",
    )
    module_calls: int | None = nullable(
        INT, "autocast_exit: most calls of one module within an outermost block (examined steps)."
    )
    limit: float | None = nullable(FLOAT, "clip: the largest norm or value allowed.")
    norm: float | None = nullable(
        FLOAT,
        "clip: the total norm that it returned or was given; grad: that of the gradients; scaler_step, unscale: that "
        "of the gradients before it, with resized (examined steps).",
    )
    error: str | None = nullable(STRING, "Exception that the call raised, or that passed (exception).")
    error_file: str | None = nullable(
        STRING, "error: source file of the innermost line outside torch that it came from."
    )
    error_line: int | None = nullable(INT, "error: that line.")
    error_function: str | None = nullable(
        STRING, "error: function of that line, with its class where Python tells (Plain.backward)."
    )
    error_module: str | None = nullable(STRING, "error: path of the innermost module it passed.")
    custom_function: str | None = nullable(
        STRING,
        "error: the innermost custom autograd.Function, none of torch's own, that it came from (Plain.backward).",
    )
    last_autocast: str | None = nullable(
        STRING, "error: autocast dtype in force, or else of the block that was left last."
    )
    anomaly_mode: bool | None = nullable(BOOL, "error: autograd's anomaly mode was on.")
    loss: float | None = nullable(FLOAT, "error of a backward: what it started from, divided by the loss scale.")
