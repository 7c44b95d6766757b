"""What is said in Chinese: nothing is missing, nothing is left over, and names stay as they are."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from ampdoctor.report.rule_text import first_line, rule_blocks
from ampdoctor.rules import discover
from ampdoctor_dashboard.words import Words, words_of
from ampdoctor_dashboard.words.patterns import gaps_of
from ampdoctor_dashboard.words.sentences import files_of
from ampdoctor_dashboard.words.told import LONGEST, missing, told
from tests.dashboard.spoken import schema_docs, spoken_texts, without_literal
from tests.dashboard.texts import told_texts

if TYPE_CHECKING:
    from ampdoctor.rules.base import Rule

ZH = words_of("zh")
CHINESE = re.compile("[\u4e00-\u9fff]")
SENTENCES = files_of("zh")
ENGLISH_WORD = re.compile(r"(?<![\w./\\@#-])[a-z][a-z']+(?![\w(./\\-])")
AS_CODE = re.compile('`[^`]*`|\u201c[^\u201d]*\u201d|"[^"]*"')


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return told_texts()


def test_all_that_diagnoses_say_is_said_in_chinese(texts: dict[str, str]) -> None:
    unsaid = [f"{source}\n  {text}\n  {told(ZH, text)}" for text, source in texts.items() if missing(ZH, text)]
    assert not unsaid, f"{len(unsaid)} sentences; add them to words/zh/findings:\n" + "\n".join(unsaid[:50])


def test_no_english_words_are_left_but_terms(texts: dict[str, str]) -> None:
    left: dict[str, str] = {}
    for text in texts:
        said = told(ZH, text)
        if " raised " not in text and not text.startswith("not recorded"):
            left |= dict.fromkeys(ENGLISH_WORD.findall(AS_CODE.sub("", said)), f"{text} -> {said}")
    assert not {word: text for word, text in left.items() if word not in TERMS}


TERMS = frozenset([
    "amax", "autocast", "autograd", "backward", "beta", "bitsandbytes", "cat", "cpu", "cross", "cuda", "cut", "dtype",
    "entropy", "eps", "epsilon", "forward", "graph", "head", "heads", "inf", "log", "logits", "loss", "mask", "max",
    "mean", "nan", "norm", "optimizer", "rad", "rank", "scaler", "sigmoid", "softmax", "step", "token", "tokens",
    "torch", "torchao", "torchtune", "unscale", "update",
])  # fmt: skip
"""Words that engineers who speak Chinese use as they are, and names in the examples."""


def test_code_and_numbers_come_through(texts: dict[str, str]) -> None:
    for text in texts:
        said = told(ZH, text)
        for part in re.findall("`[^`]*`|\\d[\\d.]*\\d", text):
            assert part in said, f"{text} -> {said}"


def test_what_is_said_has_the_same_gaps() -> None:
    files = {**SENTENCES, "words": dict(ZH.catalogue)}
    wrong = [
        (name, english) for name, file in files.items() for english, other in file.items()
        if gaps_of(english) != gaps_of(other)
    ]  # fmt: skip
    assert wrong == []


def test_no_sentence_is_said_in_two_ways() -> None:
    ways: dict[str, set[str]] = {}
    for file in SENTENCES.values():
        for english, other in file.items():
            ways.setdefault(english, set()).add(other)
    assert {english: others for english, others in ways.items() if len(others) > 1} == {}


@pytest.mark.parametrize("rule", discover(), ids=lambda rule: rule.name)
def test_a_rule_has_a_chinese_page(rule: type[Rule]) -> None:
    page = [first_line(rule), *(text for kind, text in rule_blocks(rule) if kind in {"heading", "paragraph"})]
    for text in [*page, *(threshold.source for threshold in rule.thresholds.values())]:
        assert CHINESE.search(told(ZH, text)), f"words/zh/rules/{rule.name}.json lacks: {text}"
        assert not missing(ZH, text)
        assert sorted(re.findall("`[^`]*`", text)) == sorted(re.findall("`[^`]*`", told(ZH, text)))


def test_pages_of_rules_hold_nothing_else() -> None:
    said = {first_line(rule) for rule in discover()}
    said |= {text for rule in discover() for _, text in rule_blocks(rule)}
    said |= {threshold.source for rule in discover() for threshold in rule.thresholds.values()}
    kept = {english for name, file in SENTENCES.items() if name.startswith("rules/") for english in file}
    assert kept - said == set()


def test_all_that_pages_say_is_said_in_chinese() -> None:
    unsaid = {text: file for text, file in spoken_texts().items() if text not in ZH.catalogue}
    assert not unsaid, f"{len(unsaid)} texts; add them to words/zh/<page>.json: {unsaid}"


def test_the_schema_is_explained_in_chinese() -> None:
    assert {doc for doc in schema_docs() if doc not in ZH.catalogue} == set()


def test_nothing_is_kept_that_no_page_says() -> None:
    assert set(ZH.catalogue) - set(spoken_texts()) - schema_docs() == set()


def test_every_text_of_a_page_can_be_collected() -> None:
    assert without_literal() == []


def test_phrases_in_gaps_are_translated_too() -> None:
    verdict = (
        "Not a precision problem. The loss runs away from step 2 on, from 1.2 to 1.3e+08, before anything is NaN: the "
        "learning rate is too high, in FP32 as much as here (nan-not-precision), and 2 more faults"
    )
    said = told(ZH, verdict)
    assert not missing(ZH, verdict)
    assert said.startswith("不是精度问题。")
    assert "2 个问题" in said[-10:]


def test_what_nobody_has_translated_stays_english() -> None:
    text = "Something new is wrong with the run."
    assert told(ZH, text) == text
    assert missing(ZH, text)


def test_english_stays_as_it_is() -> None:
    assert told(Words(), "6 steps") == "6 steps"


@pytest.mark.parametrize("name", ["the loss", "1 step", "a, every 4 steps", "<script>alert(1)</script>", "{n} {x}"])
def test_a_name_is_never_translated(name: str) -> None:
    text = f"An activation overflows FP16 in `{name}`: values beyond 65504 become infinite, and the loss is nan."
    assert f"`{name}`" in told(ZH, text)


@pytest.mark.parametrize(
    "text",
    [
        "a in b of c at d " * 230, "`" * LONGEST, " (" * 2000, "1 step, " * 490, "x, y; z: " * 440,
        "On step 1, On step 1, " * 180, "A. B. " * 660, "9" * LONGEST, "in " * 5000, "\x00\n" * 900,
        "and ".join(["the loss of rank 1 is NaN or infinite, "] * 100),
    ],
)  # fmt: skip
def test_hostile_text_takes_no_time(text: str) -> None:
    begin = time.perf_counter()
    once = told(ZH, text)
    assert time.perf_counter() - begin < 1.0
    assert told(ZH, text) == once
