"""The JSON text of a memory file to a recipe that has been compared, field by field, with what it implies."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

from tokagnostic.errors import InvalidValueError, MemoryFileError
from tokagnostic.hashing.cache import PrefixPolicy
from tokagnostic.memory.base import MemoryConfig, memory_kinds
from tokagnostic.memory.laws import NUM_GOLDEN, Law
from tokagnostic.memory.quantised import CodeFormat, block_size_of
from tokagnostic.memory.recipe import (
    BREAKS,
    VERSION,
    MemoryRecipe,
    RowFormat,
    TableRecipe,
    identity_of,
    scale_name,
    table_name,
    visits_name,
)


def recipe_from_json(text: str) -> MemoryRecipe:
    """Read a recipe and believe nothing: every field is compared with what this program would have written.

    Args:
        text: the value of the file's metadata key.

    Raises:
        MemoryFileError: naming the first field that is missing, unknown, or at odds with the others.
    """
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _refusal("the recipe", f"no JSON ({error})", "canonical JSON") from error
    _check_version(values)
    config, row_format, block_size = _read_config(values)
    try:
        law = config.law
    except InvalidValueError as error:
        raise _refusal("config", f"refused: {error.given}", error.expected) from error
    _check_equal("hash.", _mapping(values, "hash"), law.stated)
    tables = _read_tables(values, config)
    _check_equal("", values, {"max_order": config.max_order})
    policy = _mapping(values, "policy")
    _check_equal("policy.", policy, dict.fromkeys(BREAKS, "break"))
    prefix = _known(policy, "policy.prefix", get_args(PrefixPolicy))
    _check_golden(values, law, tables)
    digests = _read_digests(values, config, len(tables), block_size is not None)
    identity = _required(values, "identity")
    try:
        expected = identity_of(values)
    except ValueError as error:
        raise _refusal("the recipe", "no valid text", "text in UTF-8") from error
    if identity != expected:
        raise _refusal("identity", identity, f"{expected}, as the recipe implies")
    trained_on = values.get("trained_on")
    if trained_on is not None and not isinstance(trained_on, dict):
        raise _refusal("trained_on", trained_on, "a mapping")
    return MemoryRecipe(config, row_format, tables, prefix, digests, trained_on, block_size)


def _refusal(field: str, found: object, expected: str) -> MemoryFileError:
    shown = found if isinstance(found, str) else repr(found)
    return MemoryFileError(
        f"`{field}` is {shown if len(shown) <= 80 else shown[:80] + '...'}",
        expected=expected,
        remedy="Get the file again from where it came, or export the memory again",
    )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _required(values: Mapping[str, Any], field: str) -> Any:
    """A field by its dotted name, looked up by the last part."""
    name = field.rpartition(".")[2]
    if name not in values:
        raise _refusal(field, "missing", "a field that every memory file has")
    return values[name]


def _mapping(values: Mapping[str, Any], field: str) -> dict[str, Any]:
    value = _required(values, field)
    if not isinstance(value, dict):
        raise _refusal(field, value, "a mapping")
    return value


def _list(values: Mapping[str, Any], field: str, length: int | None = None) -> list[Any]:
    value = _required(values, field)
    if not isinstance(value, list) or length not in (None, len(value)):
        raise _refusal(field, value, "a list" if length is None else f"a list of {length}")
    return value


def _known(values: Mapping[str, Any], field: str, choices: Collection[str]) -> Any:
    value = _required(values, field)
    if not isinstance(value, str) or value not in choices:
        raise _refusal(field, value, f"one of {', '.join(choices)}")
    return value


def _check_equal(prefix: str, values: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuse the first field that differs. JSON text is compared: to Python 1, 1.0 and True would be equal."""
    for name, right in expected.items():
        found = _required(values, prefix + name)
        if json.dumps(found) != json.dumps(right):
            raise _refusal(prefix + name, found, json.dumps(right))


def _check_version(values: object) -> None:
    if not isinstance(values, dict):
        raise _refusal("the recipe", values, "a mapping")
    version = _required(values, "version")
    if type(version) is int and version > VERSION:
        raise MemoryFileError(
            f"`version` is {version}",
            expected=f"at most {VERSION}, the newest that this program knows",
            remedy="Install a newer tokagnostic",
        )
    if type(version) is not int or version < 1:
        raise _refusal("version", version, "a whole number of at least 1")


def _read_config(values: Mapping[str, Any]) -> tuple[MemoryConfig, RowFormat, int | None]:
    kind = _known(values, "kind", memory_kinds())
    fields = dict(_mapping(values, "config"))
    row_format = _known(fields, "config.row_format", get_args(RowFormat))
    block_size = _required(fields, "config.block_size")
    del fields["row_format"], fields["block_size"]
    try:
        config = MemoryConfig.from_dict({**fields, "kind": kind})
    except InvalidValueError as error:
        raise _refusal("config", f"refused: {error.given}", error.expected) from error
    for field in dataclasses.fields(config):
        _required(fields, f"config.{field.name}")
    # No default stands in for what the file does not say.
    if row_format in get_args(CodeFormat) and block_size is None:
        raise _refusal("config.block_size", None, f"a divisor of {config.dim} for rows in {row_format}")
    try:
        return config, row_format, block_size_of(row_format, config.dim, block_size)
    except InvalidValueError as error:
        raise _refusal("config.block_size", block_size, error.expected) from error


def _read_tables(values: Mapping[str, Any], config: MemoryConfig) -> tuple[TableRecipe, ...]:
    addresser = config.addresser()
    stated = _list(values, "tables", addresser.num_tables)
    for i, table in enumerate(stated):
        if not isinstance(table, dict):
            raise _refusal(f"tables[{i}]", table, "a mapping")
        # The lengths are compared before any prime is looked for, so that no config can make that search long.
        _list(table, f"tables[{i}].moduli", addresser.num_moduli)
        layers = _list(table, f"tables[{i}].layers")
        if not all(type(layer) is int and layer >= 0 for layer in layers):
            raise _refusal(f"tables[{i}].layers", layers, "layers counted from 0")
    try:
        moduli, offsets = addresser.moduli, addresser.offsets
    except InvalidValueError as error:
        raise _refusal("config", f"refused: {error.given}", error.expected) from error
    for i, table in enumerate(stated):
        _check_equal(f"tables[{i}].", table, {"moduli": moduli[i], "offsets": offsets[i]})
    return tuple(TableRecipe(tuple(moduli[i]), tuple(table["layers"])) for i, table in enumerate(stated))


def _check_golden(values: Mapping[str, Any], law: Law, tables: Sequence[TableRecipe]) -> None:
    moduli = [table.moduli for table in tables]
    for i, window in enumerate(_list(values, "golden", NUM_GOLDEN)):
        if not isinstance(window, dict):
            raise _refusal(f"golden[{i}]", window, "a mapping")
        stated = _required(window, f"golden[{i}].{law.window_field}")
        try:
            expected = law.golden(stated, moduli)
        except (TypeError, ValueError) as error:
            raise _refusal(f"golden[{i}].{law.window_field}", stated, law.window_form) from error
        for name, right in expected.items():
            # A key may be written as a decimal string or as an integer.
            found = _required(window, f"golden[{i}].{name}")
            if json.dumps(found).strip('"') != json.dumps(right).strip('"'):
                raise _refusal(f"golden[{i}].{name}", found, f"{right} by the hash law of this program")


def _read_digests(
    values: Mapping[str, Any], config: MemoryConfig, num_tables: int, is_quantised: bool
) -> dict[str, str]:
    digests = _mapping(values, "digests")
    kinds = (table_name, visits_name, scale_name) if is_quantised else (table_name, visits_name)
    names = {name(i) for i in range(num_tables) for name in kinds} | set(config.own_tensors)
    if set(digests) != names:
        raise _refusal(
            "digests", f"given for {', '.join(sorted(digests))}", f"one for each of {', '.join(sorted(names))}"
        )
    for name, digest in digests.items():
        if not isinstance(digest, str) or len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise _refusal(f"digests.{name}", digest, "a SHA-256 in lower-case hex")
    return digests
