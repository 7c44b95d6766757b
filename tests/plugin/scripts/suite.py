"""A user's test file. Names say what must become of each test: ok, fails, skips."""

import json
import warnings

import pytest
import torch
from torch import nn

from ampdoctor.gate.baseline import Baseline, baseline_of, text_of


def recorded(ampdoctor, shrink=1.0, steps=8, **how):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    with ampdoctor.watch(model, optimizer=optimizer, scaler=scaler, **how) as rec:
        for _ in range(steps):
            with torch.autocast("cpu", dtype=torch.float16):
                loss = (model(torch.randn(8, 16)).float() ** 2).mean() * shrink
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return rec


def test_healthy_ok(ampdoctor):
    rec = recorded(ampdoctor, every=2)
    rec.assert_no_findings()
    rec.assert_max(flushed=0.05, skipped=0, memory="1GiB")
    rec.assert_max(flushed="90%", sites="0.*")
    rec.assert_min(cosine=0.9)
    assert len(rec.run.steps) == 8
    assert rec.diagnosis.examined.examined_steps < 8
    assert rec.readings["flushed"]["0.weight"].value < 0.05


def test_underflow_fails(ampdoctor):
    recorded(ampdoctor, 1e-6).assert_no_findings()


def test_ignored_ok(ampdoctor):
    recorded(ampdoctor, 1e-6).assert_no_findings(ignore=["gradient-*", "AMP206"])


def test_limit_fails(ampdoctor):
    recorded(ampdoctor, 1e-6).assert_max(flushed=0.01, sites="0.*")


def test_typo_fails(ampdoctor):
    recorded(ampdoctor).assert_max(flushd=0.01)


def test_wrong_way_fails(ampdoctor):
    recorded(ampdoctor).assert_max(cosine=0.01)


def test_within_the_block_fails(ampdoctor):
    with ampdoctor.watch() as rec:
        rec.assert_no_findings()


def test_no_step_fails(ampdoctor):
    with ampdoctor.watch() as rec:
        pass
    rec.assert_no_findings()


def baseline(rec, folder):
    path = folder / "baseline.json"
    path.write_text(text_of(baseline_of([(rec.run, rec.diagnosis)])), encoding="utf-8")
    return path


def test_as_before_ok(ampdoctor, tmp_path):
    recorded(ampdoctor).assert_no_regression(baseline(recorded(ampdoctor), tmp_path))


def test_worse_than_before_fails(ampdoctor, tmp_path):
    recorded(ampdoctor, 1e-6).assert_no_regression(baseline(recorded(ampdoctor), tmp_path))


def test_other_model_fails(ampdoctor, tmp_path):
    made = json.loads(baseline(recorded(ampdoctor), tmp_path).read_text(encoding="utf-8"))
    made["sites"] = {name: {f"x{site}": v for site, v in sites.items()} for name, sites in made["sites"].items()}
    (tmp_path / "other.json").write_text(json.dumps(made), encoding="utf-8")
    recorded(ampdoctor).assert_no_regression(tmp_path / "other.json")


def test_wrong_site_fails(ampdoctor):
    assert recorded(ampdoctor).readings["flushed"]["nope"]


def test_empty_baseline_fails(ampdoctor, tmp_path):
    (tmp_path / "empty.json").write_text(text_of(Baseline(0)), encoding="utf-8")
    recorded(ampdoctor).assert_no_regression(tmp_path / "empty.json")


def test_two_runs_and_an_error_of_its_own_fails(ampdoctor):
    recorded(ampdoctor)
    recorded(ampdoctor)
    raise RuntimeError("of the test")


@pytest.mark.ampdoctor(max_flushed="5%", max_skipped=0, min_cosine=0.9)
def test_marked_ok(ampdoctor):
    recorded(ampdoctor)


@pytest.mark.ampdoctor(max_flushed=0.01, sites="0.*", fail_on="never")
def test_marked_fails(ampdoctor):
    recorded(ampdoctor, 1e-6)


@pytest.mark.ampdoctor(max_flushd=0.01)
def test_mistyped_marker_fails(ampdoctor):
    recorded(ampdoctor)


@pytest.mark.ampdoctor
def test_marked_without_a_recording_fails():
    pass


@pytest.mark.ampdoctor(baseline="no-such.json")
def test_missing_baseline_fails(ampdoctor):
    recorded(ampdoctor)


@pytest.mark.ampdoctor(max_flushed=0)
def test_marked_skips():
    pytest.skip("not here")


@pytest.mark.xfail(strict=True, reason="known to underflow")
@pytest.mark.ampdoctor
def test_expected_to_be_bad_skips(ampdoctor):
    recorded(ampdoctor, 1e-6)


def test_without_ampdoctor_ok():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
