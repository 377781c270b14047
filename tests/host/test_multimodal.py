"""Hosts that read images beside text: their ids are those of the outer call."""

from __future__ import annotations

import pytest
import torch
from hosts import NUM_ROWS, VOCABULARY, logits_of, make_memory, random_ids, wake
from torch import Tensor, nn
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedModel,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SiglipVisionConfig,
)

from tokagnostic.host import Attachment, attach
from tokagnostic.host.discovery import find_parts

IMAGE = 300
TEXT = {
    "vocab_size": NUM_ROWS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


def gemma3() -> PreTrainedModel:
    text = Gemma3TextConfig(**TEXT, sliding_window=6)
    config = Gemma3Config(
        text_config=text,
        vision_config=SiglipVisionConfig(**VISION),
        mm_tokens_per_image=4,
        image_token_id=IMAGE,
        boi_token_id=301,
    )
    return Gemma3ForConditionalGeneration(config)


def llava() -> PreTrainedModel:
    config = LlavaConfig(
        vision_config=SiglipVisionConfig(**VISION),
        text_config=LlamaConfig(**TEXT),
        image_token_index=IMAGE,
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
    return LlavaForConditionalGeneration(config)


def qwen3_vl() -> PreTrainedModel:
    """Its positions are of time, height and width."""
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "mrope_interleaved": True, "rope_theta": 10000.0}
    vision = {"depth": 1, "hidden_size": 16, "out_hidden_size": 32, "num_heads": 2, "intermediate_size": 16}
    patches = {"patch_size": 14, "spatial_merge_size": 1, "temporal_patch_size": 1, "num_position_embeddings": 4}
    return Qwen3VLForConditionalGeneration(
        Qwen3VLConfig(
            text_config={**TEXT, "rope_parameters": rope},
            vision_config={**vision, **patches, "deepstack_visual_indexes": [0]},
            image_token_id=IMAGE,
            video_token_id=302,
            vision_start_token_id=303,
            vision_end_token_id=304,
        )
    )


@pytest.fixture(params=[gemma3, llava, qwen3_vl], ids=["gemma3", "llava", "qwen3_vl"])
def host(request: pytest.FixtureRequest) -> PreTrainedModel:
    torch.manual_seed(11)
    host = request.param().eval()
    for parameter in host.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.2)
    return host


@pytest.fixture
def attachment(host: PreTrainedModel) -> Attachment:
    attachment = wake(attach(host, VOCABULARY, make_memory(), layers=(0, 2), conv_kernel=3))
    for layer in attachment.reader.values():
        nn.init.normal_(layer.conv.weight)
    return attachment


def with_image(host: PreTrainedModel) -> tuple[Tensor, dict[str, Tensor]]:
    """Ids with the four places of an image among them, [1, 13], and what comes with them."""
    ids = random_ids(1, 13)
    ids[:, 4:8] = IMAGE
    pixels = torch.randn(1, 3, 28, 28, generator=torch.Generator().manual_seed(4))
    if host.config.model_type != "qwen3_vl":
        return ids, {"pixel_values": pixels}
    patches = pixels.view(3, 2, 14, 2, 14).permute(1, 3, 0, 2, 4).reshape(4, 3 * 14 * 14)
    return ids, {"pixel_values": patches, "image_grid_thw": torch.tensor([[1, 2, 2]])}


def kinds_of(ids: Tensor, host: PreTrainedModel) -> dict[str, Tensor]:
    """What some hosts must be told beside an image: which ids are of it."""
    return {"mm_token_type_ids": (ids == IMAGE).long()} if host.config.model_type == "qwen3_vl" else {}


def test_the_text_layers_are_read_in_the_call_that_has_the_ids(host: PreTrainedModel) -> None:
    parts = find_parts(host)
    assert (len(parts.layers), parts.width, parts.num_ids) == (3, 32, NUM_ROWS)
    assert parts.decoder is host.model


class TestExact:
    def test_a_fresh_memory_changes_nothing(self, host: PreTrainedModel) -> None:
        ids, image = with_image(host)
        expected = logits_of(host, ids, **image, **kinds_of(ids, host))
        attach(host, VOCABULARY, make_memory())
        assert torch.equal(logits_of(host, ids, **image, **kinds_of(ids, host)), expected)

    def test_the_memory_is_heard_and_silent_when_off(self, host: PreTrainedModel, attachment: Attachment) -> None:
        ids, image = with_image(host)
        on = logits_of(host, ids, **image, **kinds_of(ids, host))
        with attachment.disabled():
            off = logits_of(host, ids, **image, **kinds_of(ids, host))
        assert not torch.allclose(on, off)
        attachment.remove()
        assert torch.equal(logits_of(host, ids, **image, **kinds_of(ids, host)), off)

    def test_windows_do_not_reach_over_an_image(self, host: PreTrainedModel, attachment: Attachment) -> None:
        ids, _ = with_image(host)
        keys = attachment.hasher(ids)
        assert (keys[:, 4:8] == -1).all()
        assert torch.equal(keys[:, 8:], attachment.hasher(ids[:, 8:]))

    @pytest.mark.parametrize("image", [True, False], ids=["image", "text"])
    def test_decoding_with_a_cache_is_decoding_without(
        self, host: PreTrainedModel, attachment: Attachment, image: bool
    ) -> None:
        ids, given = with_image(host) if image else (random_ids(2, 9), {})
        told = {"attention_mask": torch.ones_like(ids), **given, **(kinds_of(ids, host) if image else {})}
        generated = host.generate(ids, **told, max_new_tokens=6, min_new_tokens=6, do_sample=False)
        length = ids.shape[1]
        told = {**given, **(kinds_of(generated, host) if image else {})}
        logits = logits_of(host, generated, **told)[:, length - 1 : -1].clone()
        logits[..., 0] = -torch.inf  # held back by `min_new_tokens`
        assert torch.equal(logits.argmax(dim=-1), generated[:, length:])

    def test_training_reaches_the_reader(self, host: PreTrainedModel, attachment: Attachment) -> None:
        ids = random_ids(2, 9)
        extra = {"token_type_ids": torch.zeros_like(ids)} if "gemma3" in host.config.model_type else {}
        host.train()(input_ids=ids, labels=ids, **extra).loss.backward()
        assert all(weight.grad is not None for weight in attachment.reader.parameters())
