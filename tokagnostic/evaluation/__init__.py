"""Models, memories and tokenizers to numbers."""
