"""A run whose memory is addressed by ids: trained, interrupted, resumed, exported, read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from setups import MEMORY, assert_equal, change, weights_of

from tokagnostic.memory import XorConfig, read_recipe
from tokagnostic.training import fit as fit_module
from tokagnostic.training.config import PretrainConfig
from tokagnostic.training.pretrain import pretrain
from tokagnostic.training.run import load_run

XOR = XorConfig(MEMORY.max_order, MEMORY.dim, MEMORY.num_rows, MEMORY.num_heads)


@pytest.mark.slow
def test_an_interrupted_run_ends_where_it_would_have(config: PretrainConfig, monkeypatch, tmp_path: Path) -> None:
    config = change(config, memory=XOR)
    steady = change(config, output=str(tmp_path / "steady"))
    pretrain(steady)
    save = fit_module.save_checkpoint

    def save_or_stop(folder, checkpoint, num_kept):
        if checkpoint.step == 4:
            raise KeyboardInterrupt
        return save(folder, checkpoint, num_kept)

    with monkeypatch.context() as patch:
        patch.setattr(fit_module, "save_checkpoint", save_or_stop)
        with pytest.raises(KeyboardInterrupt):
            pretrain(config)
    pretrain(change(config, resume=True))
    assert_equal(weights_of(Path(config.output)), weights_of(tmp_path / "steady"))
    run = load_run(config.output)
    recipe = read_recipe(Path(config.output) / "attachment" / "memory.safetensors")
    assert run.attachment.memory.config == recipe.config
    assert recipe.config.tokenizer == run.encoder.token_bytes.fingerprint
