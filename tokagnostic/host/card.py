"""What is known of a saved attachment to its model card: facts, and how to load it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokagnostic.memory.recipe import MemoryRecipe

if TYPE_CHECKING:
    from tokagnostic.host.attachment import Attachment
    from tokagnostic.host.saving import AttachmentConfig


def model_card(attachment: Attachment, config: AttachmentConfig, recipe: MemoryRecipe) -> str:
    """A card in Markdown, with the header that the hub reads.

    Args:
        attachment: what is saved.
        config: its settings.
        recipe: what its memory file says of itself.
    """
    host: Any = attachment.model
    name = str(getattr(getattr(host, "config", None), "_name_or_path", "") or "")
    # A path of some machine is no model of the hub.
    base = name if name.count("/") == 1 and not name.startswith((".", "/", "~")) else ""
    header = ["---", "library_name: tokagnostic", "tags: [tokagnostic, engram, n-gram-memory]"]
    header += [f"base_model: {json.dumps(base)}"] if base else []
    rows, least = sum(table.num_rows for table in recipe.tables), recipe.config.law.min_order
    facts = {
        "Host": f"{type(host).__name__}{f' {base}' if base else ''}, width {config.width}",
        "Layers that read": ", ".join(str(layer) for layer in config.layers),
        "Gate": config.gate,
        "Short convolution": f"{config.conv_kernel} taps" if config.conv_kernel else "none",
        "Ids that start documents": ", ".join(str(token_id) for token_id in config.boundary_ids) or "none",
        "Orders read": f"{least} to {config.max_order} of {least} to {recipe.max_order}",
        "Reader": f"{sum(parameter.numel() for parameter in attachment.reader.parameters()):,} parameters",
        "Memory": f"{recipe.config.kind}, {len(recipe.tables)} table(s), {rows:,} rows of {recipe.config.dim} numbers, "
        f"{recipe.row_format}",
        "Memory's identity": f"`{recipe.identity}`",
        "Memory's file": f"`{config.memory_file}`",
    }
    for key, value in (recipe.trained_on or {}).items():
        facts[f"Memory trained on: {key}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    lines = [
        *header,
        "---",
        "",
        "# An n-gram memory for a language model, with the reader that was trained for it",
        "",
        "| | |",
        "|---|---|",
        *(f"| {_cell(key)} | {_cell(value)} |" for key, value in facts.items()),
        "",
        "```python",
        "from tokagnostic import load_attachment",
        "",
        "attachment = load_attachment(model, tokenizer, FOLDER_OR_HUB_NAME)  # model and tokenizer: the host's own",
        "```",
        "",
    ]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """One line that does not end the cell that it stands in."""
    return " ".join(text.split()).replace("|", "\\|")
