"""Models from a Hugging Face config."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ampdoctor.errors import AmpDoctorError
from ampdoctor.record.planning.plan import Question, plan

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("transformers")

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 64,
    "torch_dtype": "bfloat16",
}  # fmt: skip

PARAMETERS = 2 * 100 * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32
"""Embedding and head; attention, MLP and two norms of each layer; the last norm."""


def config(folder: Path, **changes: object) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(LLAMA | changes), encoding="utf-8")
    return file


def test_a_language_model(tmp_path: Path) -> None:
    found = plan(Question(str(config(tmp_path)), batch=2, layouts="fp32,pure-bf16", device="cpu"))
    assert (found.parameters, found.sequence) == (PARAMETERS, 64)
    full, half = (each.memory.ends["step"] for each in found.layouts)
    assert (full["weights"], half["weights"]) == (4 * PARAMETERS, 2 * PARAMETERS)


def test_the_folder_and_the_length_of_samples(tmp_path: Path) -> None:
    config(tmp_path)
    short, long = (plan(Question(str(tmp_path), layouts="fp32", sequence=n)) for n in (8, 32))
    kept = [each.layouts[0].memory.ends["forward"]["activations"] for each in (short, long)]
    assert kept[1] == pytest.approx(4 * kept[0], rel=0.2)
    assert long.sequence == 32


def test_checkpointing_is_the_models_own(tmp_path: Path) -> None:
    question = Question(str(config(tmp_path)), batch=8, layouts="fp32")
    plain = plan(question).layouts[0].memory
    less = plan(Question(question.target, 8, layouts="fp32", checkpoint=True)).layouts[0].memory
    assert less.ends["forward"]["activations"] < 0.6 * plain.ends["forward"]["activations"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no config"),
        ("[]", "is no config"),
        ('{"hidden_size": 8}', "is no config"),
        ('{"model_type": "unheard-of"}', "can't use"),
        ('{"model_type": "vit", "architectures": ["ViTModel"]}', "takes no tokens"),
    ],
)
def test_what_is_no_language_model(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(AmpDoctorError, match=said) as error:
        plan(Question(str(file)))
    assert error.value.hint
