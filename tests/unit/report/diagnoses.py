"""Diagnoses as the engine makes them, for every test that shows one."""

from __future__ import annotations

from dataclasses import replace

from ampdoctor.engine import Diagnosis, Examined, Ignored, NotRun
from ampdoctor.finding import Confidence, Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.precision import precision_used
from ampdoctor.trace.builder import RunBuilder

SOURCE = "/srv/projects/pretraining/scripts/with/a/long/path/train_bert_mlm.py:88"
SITES = tuple(f"bert.encoder.layer.{i}.attention.query.weight (weight_grad)" for i in range(14))
CODE = """\
scaler = torch.amp.GradScaler("cuda")

scaler.scale(loss).backward()
scaler.unscale_(optimizer)  # before clipping, so that the norm is that of the real gradients and no other
scaler.step(optimizer)
scaler.update()
"""
DIFF = """\
- with torch.autocast("cuda", torch.float16):
+ with torch.autocast("cuda", torch.bfloat16):
"""

LOST = Finding(
    code="AMP009",
    name="lost-updates",
    severity=Severity.WARNING,
    summary="2 % of the weights of the embedding never move.",
    confidence=Confidence.MEDIUM,
    grade=Grade.OBSERVED,
)
UNDERFLOW = Finding(
    code="AMP001",
    name="gradient-underflow",
    severity=Severity.ERROR,
    summary="61 % of the gradient's elements became zero in FP16, and the loss stays at 10.3.",
    confidence=Confidence.HIGH,
    grade=Grade.ESTIMATED,
    location=Location(SITES, first_step=0, last_step=59, source=SOURCE),
    evidence=(
        Evidence("flushed_share", 0.61, "61.2 % of the elements are lost.", Grade.ESTIMATED),
        Evidence("zero_share", 0.83, "83.0 % of them are exactly zero.", Grade.OBSERVED),
        Evidence("cosine", 0.12, "The gradient points elsewhere: cosine 0.12.", Grade.MEASURED),
    ),
    fixes=(
        Fix("Scale the loss with GradScaler", CODE, "0.3 % stay lost.", Grade.ESTIMATED),
        Fix("Use BF16", DIFF, "Nothing is lost.", Grade.MEASURED),
    ),
    consequences=(LOST,),
)
NOTE = replace(LOST, code="AMP030", severity=Severity.NOTE, name="harmless", summary="Fine.")

HEALTHY = Diagnosis(
    run="ampdoctor-runs/train-20260101-120000",
    verdict="Healthy: nothing in the precision of this run harms it.",
    precision=precision_used(RunBuilder().build()),
    passed=("gradient-underflow", "loss-scale-too-small", "scale-collapse"),
    examined=Examined(steps=60, examined_steps=12, tensors=1834, modules=41),
)
COLLAPSED = replace(
    HEALTHY,
    verdict="Harmed: FP16 gradients underflow because nothing scales the loss.",
    findings=(UNDERFLOW, NOTE),
    passed=("loss-scale-too-small", "scale-collapse"),
)
UNTIDY = replace(
    HEALTHY,
    skipped=(NotRun("lost-updates", "not recorded: tensors.unchanged"),),
    crashed=(NotRun("scale-hunting", "ValueError: no such scale"),),
    ignored=(Ignored(NOTE, "we know, see issue 12"),),
    examined=replace(HEALTHY.examined, gaps=("the run was cut: its process was killed",)),
)
ALL = {"healthy": HEALTHY, "collapsed": COLLAPSED, "untidy": UNTIDY}
