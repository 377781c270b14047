"""What each control changes, and that it changes nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tokagnostic.corpus import Corpus, CorpusConfig
from tokagnostic.evaluation.key_set import KeySet
from tokagnostic.hashing import HashCache
from tokagnostic.host import Attachment
from tokagnostic.memory import JointConfig
from tokagnostic.memory.controls import noise_like
from tokagnostic.memory.file import load_memory
from tokagnostic.studies import controls
from tokagnostic.studies.controls import (
    CONTROLS,
    ControlResult,
    TargetSetting,
    run_control,
    transfer_efficiency,
)
from tokagnostic.studies.division import divide_text
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.training.config import FitConfig, HostConfig
from tokagnostic.training.packing import TokenStream

MEMORY = JointConfig(num_rows=211, num_heads=2, dim=4)


@dataclass
class Seen:
    """What the training loop was given under one control, and what came of it."""

    host: dict[str, Tensor] = field(default_factory=dict)
    reader: dict[str, Tensor] = field(default_factory=dict)
    tables: list[Tensor] = field(default_factory=list)
    batches: list[Tensor] = field(default_factory=list)
    attachment: Attachment | None = None
    config: Any = None
    result: ControlResult | None = None


@pytest.fixture(scope="module")
def setting(finished: Path, text_file: Path) -> TargetSetting:
    corpus = CorpusConfig(data=(str(text_file),), documents="paragraph")
    text = divide_text(list(Corpus(corpus)), corpus, 0.15)
    source, target = (load_tokenizer(str(finished / "tokenizers" / role)) for role in ("source", "target"))
    return TargetSetting(
        encoder=target,
        stream=TokenStream.from_documents(text.target, target),
        held_out=text.held_out[:3],
        watched=[],
        memory_file=finished / "memory.safetensors",
        memory_config=MEMORY,
        host=HostConfig(width=16, num_layers=2, num_heads=2),
        layers=(1,),
        fit=FitConfig(num_steps=3, batch_size=2, block_length=16, warmup_share=0, save_every=0, weight_decay=0.1),
        seen=KeySet.of_documents(text.source, source, 3),
    )


@pytest.fixture(scope="module")
def seen(setting: TargetSetting, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """Every control run once, watched from within."""
    found = {control: Seen() for control in CONTROLS}
    original = controls.fit

    def watched_fit(model: Any, stream: Any, config: Any, folder: Path, **arguments: Any) -> Any:
        control = found[arguments["label"]]
        control.attachment, control.config = arguments["attachment"], config
        for name, parameter in model.named_parameters():
            own = control.reader if ".reader." in name else control.tables if "memory" in name else control.host
            value = parameter.detach().clone()
            own.append(value) if isinstance(own, list) else own.update({name: value})
        hook = model.register_forward_pre_hook(
            lambda module, args, kwargs: control.batches.append(kwargs["input_ids"].clone()), with_kwargs=True
        )
        result = original(model, stream, config, folder, **arguments)
        hook.remove()
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controls, "fit", watched_fit)
        for control in CONTROLS:
            found[control].result = run_control(control, setting, tmp_path_factory.mktemp(control))
    return found


@pytest.fixture(scope="module")
def stored(setting: TargetSetting) -> Tensor:
    """The rows in the memory file, float [R, dim]."""
    return load_memory(setting.memory_file, HashCache.of(setting.encoder), mapped=False).store.tables[0].detach()


class TestAllControls:
    """E-14: same seeds, same steps, same text."""

    def test_start_from_bit_equal_hosts(self, seen) -> None:
        for control in CONTROLS:
            assert seen[control].host.keys() == seen["none"].host.keys()
            for name, value in seen["none"].host.items():
                assert torch.equal(seen[control].host[name], value), (control, name)

    def test_of_one_order_start_from_bit_equal_readers(self, seen) -> None:
        for control in ("random", "permuted", "native"):
            for name, value in seen["frozen"].reader.items():
                assert torch.equal(seen[control].reader[name], value), (control, name)

    def test_see_the_same_batches(self, seen) -> None:
        for control in CONTROLS:
            assert len(seen[control].batches) == 3
            for ours, theirs in zip(seen[control].batches, seen["none"].batches, strict=True):
                assert torch.equal(ours, theirs), control

    def test_are_trained_alike(self, seen) -> None:
        assert {seen[control].config for control in CONTROLS} == {seen["none"].config}

    def test_are_scored_on_the_same_tokens_with_the_memory_on_and_off(self, seen) -> None:
        totals = {(result.score.total.num_tokens, result.score.total.num_bytes) for result in self.results(seen)}
        assert len(totals) == 1
        for control in CONTROLS:
            off = seen[control].result.off
            assert (off is None) == (control == "none")
            if off is not None:
                assert off.memory == "off" and off.total.num_tokens == seen[control].result.score.total.num_tokens

    def test_differ_in_their_result(self, seen) -> None:
        bits = [result.score.bits_per_byte for result in self.results(seen)]
        assert len(set(bits)) == len(bits)

    @staticmethod
    def results(seen: dict[str, Seen]) -> list[ControlResult]:
        return [seen[control].result for control in CONTROLS]


class TestEachControl:
    def test_none_has_no_memory(self, seen) -> None:
        assert seen["none"].attachment is None and not seen["none"].reader and not seen["none"].tables

    def test_frozen_reads_the_file_as_it_is_and_leaves_it_so(self, seen, stored) -> None:
        """The digest holds under a global weight decay."""
        assert torch.equal(seen["frozen"].tables[0], stored)
        assert torch.equal(seen["frozen"].attachment.memory.store.tables[0], stored)
        assert seen["frozen"].result.table_unchanged is True

    def test_random_keeps_the_length_of_every_row_and_nothing_else(self, seen, stored) -> None:
        table = seen["random"].tables[0]
        torch.testing.assert_close(table.norm(dim=1), stored.norm(dim=1))
        fresh = MEMORY.build(HashCache.of(seen["random"].attachment.hasher.cache)).store.tables[0].detach()
        for other in (stored, fresh):  # noise drawn with the seed of fresh rows would point where they did
            cosine = torch.nn.functional.cosine_similarity(table, other, dim=1)
            assert abs(float(cosine.mean())) < 0.15
        assert seen["random"].result.table_unchanged is True

    def test_permuted_has_the_same_rows_elsewhere(self, seen, stored) -> None:
        def in_order(table: Tensor) -> np.ndarray:
            rows = table.numpy()
            return rows[np.lexsort(rows.T)]

        table = seen["permuted"].tables[0]
        assert np.array_equal(in_order(table), in_order(stored))
        assert float((table == stored).all(dim=1).float().mean()) < 0.05

    def test_order1_reads_single_tokens_of_the_same_table(self, seen, stored) -> None:
        memory = seen["order1"].attachment.memory
        assert memory.max_order == 1
        assert memory.feature_dim == MEMORY.num_heads * MEMORY.dim
        assert torch.equal(seen["order1"].tables[0], stored)
        ids = torch.tensor([[300, 301, 302, 303]])
        assert memory.hasher(ids).shape == (1, 4, 1)
        assert seen["frozen"].attachment.memory.feature_dim == 3 * memory.feature_dim

    def test_native_trains_a_table_of_its_own(self, seen, stored) -> None:
        fresh = seen["native"].tables[0]
        assert fresh.shape == stored.shape and not torch.equal(fresh, stored)
        table = seen["native"].attachment.memory.store.tables[0]
        assert table.requires_grad and not torch.equal(table.detach(), fresh)
        assert seen["native"].result.table_unchanged is None

    def test_all_but_native_have_tables_that_cannot_be_trained(self, seen) -> None:
        for control in ("frozen", "random", "permuted", "order1"):
            assert seen[control].attachment.memory.frozen


def test_noise_keeps_zero_rows_at_zero_and_the_dtype() -> None:
    table = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.bfloat16)
    noise = noise_like(table, torch.Generator().manual_seed(0))
    assert noise.dtype == torch.bfloat16
    assert float(noise[0].float().norm()) == pytest.approx(5, rel=0.01)
    assert noise[1].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("none", "frozen", "native", "efficiency"),
    [(2.0, 1.9, 1.8, 0.5), (2.0, 2.0, 1.5, 0.0), (2.0, 1.5, 1.5, 1.0), (2.0, 2.1, 1.8, -0.5), (2.0, 1.7, 1.8, 1.5)],
)
def test_transfer_efficiency_is_the_share_of_the_native_gain(none, frozen, native, efficiency) -> None:
    assert transfer_efficiency(none, frozen, native) == pytest.approx(efficiency)


def test_transfer_efficiency_is_no_number_where_a_native_memory_changes_nothing() -> None:
    assert math.isnan(transfer_efficiency(2.0, 1.9, 2.0))
