"""Tokenizers of the tokenizers library, which describe their own pipeline."""
