"""Tokenizers inside GGUF files, the container of llama.cpp: read from the metadata, never from the tensors."""
