"""Ids to vectors: the memory, its three replaceable parts, and its file."""

from tokagnostic.memory.base import MemoryConfig, NgramMemory, memory_kinds, register_memory
from tokagnostic.memory.file import SaveReport, load_memory, read_recipe, save_memory
from tokagnostic.memory.kinds import JointConfig, XorConfig
from tokagnostic.memory.pickling import register_pickling
from tokagnostic.memory.recipe import MemoryRecipe

register_pickling()

__all__ = [
    "JointConfig",
    "MemoryConfig",
    "MemoryRecipe",
    "NgramMemory",
    "SaveReport",
    "XorConfig",
    "load_memory",
    "memory_kinds",
    "read_recipe",
    "register_memory",
    "save_memory",
]
