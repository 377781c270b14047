"""lm-evaluation-harness on a task of our own, with the memory on and off."""

from __future__ import annotations

import builtins
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from scored_models import attach_heard, tiny_host
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from tokagnostic.errors import HostError, InvalidValueError, MissingExtraError
from tokagnostic.host import Attachment
from tokagnostic.tokens.encoder import TextEncoder

pytest.importorskip("lm_eval", reason="the extra lm-eval is not installed")

QUESTIONS = [
    {"question": f"Line {i}: the river runs through the {word}", "choices": [" town", " wall", "!"], "answer": i % 3}
    for i, word in enumerate(("old", "stone", "internal", "bridge", "winter"))
]
TASKS = {
    "choices": "output_type: multiple_choice\ndoc_to_choice: choices\ndoc_to_target: answer\ntarget_delimiter: ''\nmetric_list:\n  - metric: acc\n",
    "whole": "output_type: loglikelihood_rolling\ndoc_to_target: question\nmetric_list:\n  - metric: bits_per_byte\n",
    "continued": "output_type: generate_until\ndoc_to_target: answer\ngeneration_kwargs:\n  until: ['\\n\\n']\n"
    "  max_gen_toks: 7\nmetric_list:\n  - metric: exact_match\n",
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from lm_eval.tasks import TaskManager

    folder = tmp_path_factory.mktemp("tasks")
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    for name, settings in TASKS.items():
        prompt = "''" if name == "whole" else "question"
        (folder / f"{name}.yaml").write_text(
            f"task: {name}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {folder}/data.jsonl\n"
            f"test_split: test\ndoc_to_text: {prompt}\n{settings}"
        )
    return TaskManager(include_path=str(folder), include_defaults=False)


@pytest.fixture(scope="module")
def tokenizer(toy_tokenizers: dict[str, Tokenizer]) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=toy_tokenizers["byte_level"], eos_token="<|endoftext|>")


@pytest.fixture
def attachment(tokenizer: PreTrainedTokenizerFast) -> Attachment:
    encoder = TextEncoder.of(tokenizer)
    host = tiny_host(encoder, positions=128)
    host.generation_config.eos_token_id = None
    return attach_heard(host, encoder)


def answers(model: Any, tasks: Any, batch_size: int = 2) -> dict[str, list[Any]]:
    """What a model answers to each request of each task."""
    from lm_eval import simple_evaluate

    found = simple_evaluate(
        model=model, tasks=list(TASKS), task_manager=tasks, batch_size=batch_size, bootstrap_iters=0, verbosity="ERROR"
    )
    return {name: [sample["resps"] for sample in samples] for name, samples in found["samples"].items()}


def test_off_is_the_plain_host_and_on_is_not(
    attachment: Attachment, tokenizer: PreTrainedTokenizerFast, tasks: Any
) -> None:
    from lm_eval.models.huggingface import HFLM

    from tokagnostic.evaluation.harness import MemoryLM

    model = attachment.model
    on = answers(MemoryLM(model, tokenizer=tokenizer, batch_size=2), tasks)
    off = answers(MemoryLM(model, tokenizer=tokenizer, batch_size=2, memory="off"), tasks)
    assert answers(HFLM(model, tokenizer=tokenizer, batch_size=2), tasks) == on
    attachment.remove()
    assert answers(HFLM(model, tokenizer=tokenizer, batch_size=2), tasks) == off
    for name in TASKS:
        assert on[name] != off[name]


def test_likelihoods_are_those_of_calls_by_hand(
    attachment: Attachment, tokenizer: PreTrainedTokenizerFast, tasks: Any
) -> None:
    """Questions of unequal length in one batch read as if alone."""
    from tokagnostic.evaluation.harness import MemoryLM

    found = answers(MemoryLM(attachment.model, tokenizer=tokenizer, batch_size=5), tasks)["choices"]
    for row, choices in zip(QUESTIONS, found, strict=True):
        for choice, ((likelihood, _),) in zip(row["choices"], choices, strict=True):
            context = tokenizer(row["question"])["input_ids"]
            ids = torch.tensor([context + tokenizer(choice)["input_ids"]])
            with torch.no_grad():
                logits = attachment.model(ids, use_cache=False).logits[0].log_softmax(-1)
            places = range(len(context), ids.shape[1])
            expected = sum(float(logits[place - 1, ids[0, place]]) for place in places)
            assert likelihood == pytest.approx(expected, abs=1e-3)


def test_host_and_attachment_are_loaded_by_name(
    attachment: Attachment, tokenizer: PreTrainedTokenizerFast, tasks: Any, tmp_path: Path
) -> None:
    from tokagnostic.evaluation.harness import MemoryLM

    expected = answers(MemoryLM(attachment.model, tokenizer=tokenizer), tasks)
    attachment.model.save_pretrained(tmp_path / "host")
    tokenizer.save_pretrained(tmp_path / "host")
    attachment.save_pretrained(tmp_path / "attachment")
    named = f"pretrained={tmp_path / 'host'},attachment={tmp_path / 'attachment'},device=cpu,memory="
    from lm_eval import simple_evaluate

    for state, same in (("on", True), ("off", False)):
        found = simple_evaluate(
            model="tokagnostic", model_args=named + state, tasks=["continued"], task_manager=tasks, bootstrap_iters=0
        )
        texts = [sample["resps"] for sample in found["samples"]["continued"]]
        assert (texts == expected["continued"]) == same


def test_what_cannot_be_evaluated_is_one_line(attachment: Attachment, tokenizer: PreTrainedTokenizerFast) -> None:
    from tokagnostic.evaluation.harness import MemoryLM

    assert [MemoryLM(attachment.model, tokenizer=tokenizer, memory=word).memory for word in (True, False)] == [
        "on",
        "off",
    ]
    with pytest.raises(InvalidValueError, match="memory = 'maybe'"):
        MemoryLM(attachment.model, tokenizer=tokenizer, memory="maybe")
    attachment.remove()
    with pytest.raises(HostError, match="without a memory"):
        MemoryLM(attachment.model, tokenizer=tokenizer)


def test_a_missing_harness_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("lm_eval"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "tokagnostic.evaluation.harness", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r"pip install 'tokagnostic\[lm-eval\]'"):
        importlib.import_module("tokagnostic.evaluation.harness")
