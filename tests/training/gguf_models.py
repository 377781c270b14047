"""A tiny Llama as a GGUF file, laid out as its converter lays it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
}


def write_gguf_llama(model: Any, path: Path, quantised: bool) -> Path:
    """Write the parameters of a Llama with tied embeddings, matrices in blocks of Q8_0 if asked."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    for name, parameter in model.named_parameters():
        numbers = parameter.detach().numpy()
        prefix, own = "", name
        if name.startswith("model.layers."):
            _, _, layer, own = name.split(".", 3)
            prefix = f"blk.{layer}."
        if own.startswith(("self_attn.q_proj", "self_attn.k_proj")):
            heads = config.num_attention_heads
            numbers = numbers.reshape(heads, 2, -1, numbers.shape[1]).swapaxes(1, 2).reshape(numbers.shape)
        numbers = np.ascontiguousarray(numbers)
        if quantised and numbers.ndim == 2:
            blocks = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(prefix + NAMES[own], gguf.quantize(numbers, blocks), raw_dtype=blocks)
        else:
            writer.add_tensor(prefix + NAMES[own], numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
