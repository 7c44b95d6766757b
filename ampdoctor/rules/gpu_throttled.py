"""The rule gpu-throttled."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from ampdoctor.analysis.devices import looks, with_reason
from ampdoctor.analysis.wording import counted, number, percent
from ampdoctor.finding import Evidence, Finding, Fix, Grade, Location, Severity
from ampdoctor.rules.base import Example, Rule, Threshold
from ampdoctor.trace.builder import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ampdoctor.trace.run import Run
    from ampdoctor.trace.schema import GpuRow

_HOT = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})
_SLOWED = _HOT | {"hw_slowdown", "hw_power_brake_slowdown"}
"""What no GPU does that is cooled and fed as it should be."""

_CAPPED = "sw_power_cap"
_IDLE = "gpu_idle"


def _run(*throttle: str, looks: int = 60, clock: float = 1300.0, **columns: float) -> RunBuilder:
    run = RunBuilder(device="cuda: NVIDIA A100-SXM4-80GB")
    for _ in range(looks):
        run.step(loss=2.0).gpu(throttle=list(throttle), sm_clock_mhz=clock, max_sm_clock_mhz=1410.0, **columns)
    return run


class GpuThrottled(Rule):
    """The GPU's clocks were held down for most of the run, by heat or by its power supply.

    What it means
        The driver says why the clock is not higher. Heat and the power brake are no normal state of a GPU; its power
        limit is, under full load, and is told only where the clock falls below what the product promises.

    Why it matters
        Steps take longer, and nothing in the training is to blame: comparing its speed with another run's, in another
        precision for instance, means little. One slow GPU of many holds all others up.

    How to fix
        Look after fans, airflow and the neighbours in the case; raise the power limit if somebody has lowered it.

    Not to be mistaken for
        A GPU at its power limit that is as fast as it is sold to be. One that waits for data, whose clocks fall because
        it has nothing to do. Clocks that somebody has set.
    """

    code = "AMP605"
    name = "gpu-throttled"
    severity = Severity.NOTE
    needs = ("gpu.throttle",)
    thresholds = {
        "looks": Threshold(30, "half a minute, one a second: a GPU takes about as long to warm up"),
        "share": Threshold(0.5, "of the looks at a GPU that was at work: most of the run"),
        "limit_share": Threshold(0.95, "of the power limit that the GPU is sold with: one below it somebody has set"),
    }
    HEALTHY = (
        Example("nothing holds it down", lambda: _run(clock=1410.0)),
        Example(
            "at the power limit that it is sold with",
            lambda: _run("sw_power_cap", clock=900.0, power_w=69.9, power_limit_w=70.0, power_default_w=70.0),
        ),
        Example("waiting for data", lambda: _run("gpu_idle", clock=210.0)),
        Example("hot for a moment", lambda: _run("sw_thermal_slowdown", looks=5)),
    )
    SICK = (
        Example("hot", lambda: _run("sw_thermal_slowdown", clock=900.0, temperature_c=92.0)),
        Example(
            "a power limit that is too low",
            lambda: _run("sw_power_cap", clock=700.0, power_w=149.0, power_limit_w=150.0, power_default_w=400.0),
        ),
        Example("the power brake", lambda: _run("hw_slowdown", "hw_power_brake_slowdown", clock=300.0)),
    )

    def lacks(self, run: Run) -> list[str]:
        return with_reason(run, super().lacks(run))

    def check(self, run: Run) -> Iterator[Finding]:
        busy = [r for r in looks(run) if r.throttle is not None and _IDLE not in r.throttle]
        slow = [r for r in busy if self._slow(r)]
        if len(busy) >= self.threshold("looks") and len(slow) >= self.threshold("share") * len(busy):
            yield self._finding(slow, len(busy))

    def _slow(self, row: GpuRow) -> bool:
        reasons = set(row.throttle or ())
        if reasons & _SLOWED:
            return True
        limit, default = row.power_limit_w, row.power_default_w
        lowered = limit is not None and default is not None and limit < self.threshold("limit_share") * default
        return _CAPPED in reasons and lowered

    def _finding(self, slow: Sequence[GpuRow], busy: int) -> Finding:
        reasons = sorted({r for row in slow for r in row.throttle or ()} & {*_SLOWED, _CAPPED})
        hot = bool(_HOT & set(reasons))
        by = "heat" if hot else "its power limit" if reasons == [_CAPPED] else "its power supply or heat"
        share = percent(len(slow) / busy)
        evidence = [
            Evidence(
                "throttled_share", len(slow) / busy,
                f"In {len(slow)} of {counted(busy, 'look')} at the GPU at work ({share}) the driver named "
                f"{', '.join(reasons)}.",
            ),
            *_clock(slow),
            *_highest("temperature_c", slow, "It was {} °C hot at most."),
            *_highest("power_w", slow, "It drew {} W at most{}."),
        ]  # fmt: skip
        return self.finding(
            f"The GPU's clocks were held down by {by} for {share} of the time: the run is slower than it need be.",
            evidence=evidence,
            fixes=_fixes(slow, hot=hot),
            location=Location((), slow[0].step, slow[-1].step),
        )


def _clock(slow: Sequence[GpuRow]) -> list[Evidence]:
    clocks = [r.sm_clock_mhz for r in slow if r.sm_clock_mhz is not None]
    if not clocks:
        return []
    mean, highest = fmean(clocks), slow[-1].max_sm_clock_mhz
    of = f" of {number(highest)}" if highest else ""
    return [Evidence("sm_clock_mhz", mean, f"Its clock was {number(mean)}{of} MHz then, on average.")]


def _highest(column: str, slow: Sequence[GpuRow], sentence: str) -> list[Evidence]:
    values = [value for r in slow if (value := getattr(r, column)) is not None]
    if not values:
        return []
    limit = slow[-1].power_limit_w
    allowed = f", with a limit of {number(limit)} W" if limit else ""
    return [Evidence(column, max(values), sentence.format(number(max(values)), allowed))]


def _fixes(slow: Sequence[GpuRow], *, hot: bool) -> list[Fix]:
    device = slow[-1].uuid or "0"
    cooling = Fix(
        "See what holds it down, and cool it",
        f"nvidia-smi -i {device} -q -d TEMPERATURE,PERFORMANCE,POWER  # fans, airflow, neighbours in the case",
        "Clocks rise as soon as the reason is gone.",
        Grade.OBSERVED,
    )
    power = Fix(
        "Raise the power limit, if somebody has lowered it",
        f"sudo nvidia-smi -i {device} -pl WATTS  # nvidia-smi -q -d POWER shows the default and the most it takes",
        "The clock rises until the new limit is reached.",
    )
    return [cooling] if hot else [power, cooling]
