"""Training in half precision stays healthy; a minute of CPU, no GPU."""

import pytest
import torch
from train import build, train


def recorded(ampdoctor, dtype, *, scaled):
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    with ampdoctor.watch(model, optimizer=optimizer, scaler=scaler, every=5) as rec:
        train(model, optimizer, scaler, steps=20, dtype=dtype)
    return rec


def test_fp16_is_healthy(ampdoctor):
    rec = recorded(ampdoctor, torch.float16, scaled=True)
    rec.assert_no_findings()
    rec.assert_max(flushed=0.01, sites="4.*")
    rec.assert_min(cosine=0.99)


@pytest.mark.ampdoctor(max_flushed="1%", max_skipped=0, min_cosine=0.99)
def test_bf16_is_healthy(ampdoctor):
    recorded(ampdoctor, torch.bfloat16, scaled=False)
