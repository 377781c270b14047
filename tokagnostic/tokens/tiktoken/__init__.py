"""Tokenizers whose merges are ranks of byte strings: tiktoken's encodings, their files, and tekken's."""
