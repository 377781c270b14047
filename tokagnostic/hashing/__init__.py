"""Bytes to keys and keys to rows: integers only, equal on every backend and device."""

from tokagnostic.hashing.cache import HashCache
from tokagnostic.hashing.hasher import NgramHasher

__all__ = ["HashCache", "NgramHasher"]
