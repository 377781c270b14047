"""H-20: a table without its recipe, or with a recipe that cannot be right, is refused and the field is named."""

from __future__ import annotations

import copy
import hashlib
import json

import pytest

from tests import naive
from tokagnostic.errors import MemoryFileError
from tokagnostic.hashing.polynomial import LAW
from tokagnostic.memory import JointConfig, MemoryRecipe
from tokagnostic.memory.laws import GOLDEN_WINDOWS
from tokagnostic.memory.recipe import TableRecipe, canonical_json, identity_of
from tokagnostic.memory.recipe_reader import recipe_from_json

DIGEST = hashlib.sha256(b"").hexdigest()
IDENTIFYING = ("digests", "hash", "tables", "kind", "config", "policy")
REQUIRED = ["version", "kind", "config", "hash", "tables", "max_order", "policy", "golden", "digests", "identity"]


@pytest.fixture(scope="module")
def recipe() -> MemoryRecipe:
    config = JointConfig(max_order=4, num_rows=11, num_heads=2, dim=3, num_tables=2)
    tables = tuple(
        TableRecipe(tuple(moduli), (layer,)) for moduli, layer in zip(config.addresser().moduli, (1, 3), strict=True)
    )
    digests = {f"{name}.{i}": DIGEST for name in ("table", "visits") for i in range(2)}
    return MemoryRecipe(config, "bf16", tables, "strip", digests, {"tokenizer": "é", "bytes": 2**60})


@pytest.fixture
def values(recipe) -> dict:
    """The recipe as plain values that a test may spoil."""
    return copy.deepcopy(json.loads(recipe.to_json()))


def naive_canonical(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8")


def test_a_recipe_survives_its_json(recipe):
    again = recipe_from_json(recipe.to_json())
    assert again == recipe
    assert again.to_json() == recipe.to_json()


def test_the_json_is_canonical(recipe, values):
    """Sorted keys, no spaces, UTF-8 as it is, keys of windows as decimal strings."""
    assert recipe.to_json().encode() == naive_canonical(values)
    assert '"tokenizer":"é"' in recipe.to_json()
    assert all(window["key"] == str(int(window["key"])) for window in values["golden"])


def test_it_says_all_that_the_format_asks_for(values):
    assert set(REQUIRED) <= set(values)
    assert values["version"] == 1
    assert values["kind"] == "joint"
    assert values["config"] == {
        "max_order": 4, "num_rows": 11, "num_heads": 2, "dim": 3, "num_tables": 2, "init_std": 0.02, "seed": 0,
        "row_format": "bf16", "block_size": None,
    }  # fmt: skip
    assert values["hash"] == LAW
    assert values["tables"] == [
        {"moduli": [11, 13], "offsets": [0, 11], "layers": [1]},
        {"moduli": [17, 19], "offsets": [0, 17], "layers": [3]},
    ]
    assert values["max_order"] == 4
    breaks = {"document": "break", "special": "break", "unknown": "break", "empty": "break"}
    assert values["policy"] == {"prefix": "strip", **breaks}


def test_the_identity_is_the_digest_of_what_decides_where_rows_are(recipe, values):
    chosen = {name: values[name] for name in IDENTIFYING}
    assert values["identity"] == recipe.identity == hashlib.sha256(naive_canonical(chosen)).hexdigest()


def test_golden_windows_are_those_of_the_law(values):
    golden = values["golden"]
    assert len(golden) == 16
    data = [bytes.fromhex(window["bytes"]) for window in golden]
    assert b"\x00" in data and max(map(len, data)) == 1000 and any(min(window) >= 128 for window in data)
    for window, joined in zip(golden, data, strict=True):
        key = naive.key_of(joined)
        assert window["key"] == str(key)
        assert window["rows"] == [naive.rows_of(key, [11, 13]), naive.rows_of(key, [17, 19])]
        # Only keys above 2 ** 53 need to be strings; all of these are above.
        assert key > 2**53


def test_golden_windows_are_distinct():
    assert len(set(GOLDEN_WINDOWS)) == 16


@pytest.mark.parametrize("field", REQUIRED)
def test_a_missing_field_is_named(values, field):
    del values[field]
    with pytest.raises(MemoryFileError, match=f"`{field}` is missing"):
        recipe_from_json(json.dumps(values))


SUBFIELDS = [
    *(("hash", name) for name in LAW),
    *(("policy", name) for name in ("prefix", "document", "special", "unknown", "empty")),
    *(("config", name) for name in ("max_order", "num_rows", "num_heads", "dim", "num_tables", "init_std", "seed")),
    ("config", "row_format"),
    ("config", "block_size"),
]


@pytest.mark.parametrize(("field", "name"), SUBFIELDS, ids=lambda part: part)
def test_a_missing_subfield_is_named(values, field, name):
    del values[field][name]
    with pytest.raises(MemoryFileError, match=rf"`{field}\.{name}` is missing"):
        recipe_from_json(json.dumps(values))


@pytest.mark.parametrize("wrong", [None, True, 1.5, -7, 0, "x", "", [], {}, [[1]], "1", 2**70], ids=repr)
@pytest.mark.parametrize("field", REQUIRED)
def test_a_field_of_the_wrong_kind_is_named(values, field, wrong):
    values[field] = wrong
    with pytest.raises(MemoryFileError, match=f"`{field}") as caught:
        recipe_from_json(json.dumps(values))
    assert "\n" not in str(caught.value)


def spoiled(values: dict, path: tuple, wrong: object) -> str:
    """The recipe with one value replaced and its identity made to fit, so that the check of the field itself is met."""
    place = values
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = wrong
    values["identity"] = identity_of(values)
    return canonical_json(values).decode()


CORRUPTIONS = [
    (("version",), 2, "`version` is 2; expected at most 1"),
    (("version",), 99, "newer tokagnostic"),
    (("version",), 0, "`version`"),
    (("version",), True, "`version`"),
    (("version",), 1.0, "`version`"),
    (("kind",), "quintuple", "quintuple"),
    (("config", "num_rows"), 12, "`tables"),
    (("config", "num_rows"), 1e6, "num_rows"),
    (("config", "num_rows"), 10**12, "num_rows"),
    (("config", "num_heads"), 3, "`tables"),
    (("config", "num_heads"), 2**40, "`tables"),
    (("config", "num_tables"), 10**9, "`tables`"),
    (("config", "max_order"), 3, "`max_order`"),
    (("config", "dim"), "3", "dim"),
    (("config", "seed"), -1, "seed"),
    (("config", "extra"), 1, "'extra'"),
    (("config", "row_format"), "int4", "`config.row_format` is int4"),
    (("config", "row_format"), None, "`config.row_format`"),
    (("config", "block_size"), 32, "`config.block_size`"),
    (("hash", "law"), "xor", "`hash.law`"),
    (("hash", "prime"), 2**31 + 11, "`hash.prime`"),
    (("hash", "prime"), float(2**31 - 1), "`hash.prime`"),
    (("hash", "bases"), [271828187, 314159268], "`hash.bases`"),
    (("hash", "byte_value"), "x", "`hash.byte_value`"),
    (("hash", "key"), "lane_1 * 2**31 + lane_0", "`hash.key`"),
    (("tables", 0, "moduli"), [11, 11], "`tables[0].moduli`"),
    (("tables", 0, "moduli"), [13, 11], "`tables[0].moduli`"),
    (("tables", 0, "moduli"), [0, 13], "`tables[0].moduli`"),
    (("tables", 0, "moduli"), [11.0, 13], "`tables[0].moduli`"),
    (("tables", 1, "moduli"), [11, 13], "`tables[1].moduli`"),
    (("tables", 1, "moduli"), [17], "`tables[1].moduli`"),
    (("tables", 0, "offsets"), [0, 13], "`tables[0].offsets`"),
    (("tables", 1, "offsets"), [0], "`tables[1].offsets`"),
    (("tables", 0, "layers"), [-1], "`tables[0].layers`"),
    (("tables", 0, "layers"), "1", "`tables[0].layers`"),
    (("tables", 0), 7, "`tables[0]`"),
    (("max_order",), 5, "`max_order` is 5"),
    (("policy", "prefix"), "drop", "`policy.prefix`"),
    (("policy", "prefix"), ["strip"], "`policy.prefix`"),
    (("policy", "document"), "cross", "`policy.document`"),
    (("policy", "special"), "cross", "`policy.special`"),
    (("policy", "unknown"), "cross", "`policy.unknown`"),
    (("policy", "empty"), "cross", "`policy.empty`"),
    (("golden", 3, "key"), "1", "`golden[3].key`"),
    (("golden", 3, "rows"), [[0, 11], [0, 17]], "`golden[3].rows`"),
    (("golden", 3, "rows"), [], "`golden[3].rows`"),
    (("golden", 3, "bytes"), "zz", "`golden[3].bytes`"),
    (("golden", 3, "bytes"), 5, "`golden[3].bytes`"),
    (("golden", 3, "bytes"), "62", "`golden[3].key`"),
    (("golden", 3), None, "`golden[3]`"),
    (("golden",), [], "`golden`"),
    (("digests", "table.0"), "abc", "`digests.table.0`"),
    (("digests", "table.0"), DIGEST.upper(), "`digests.table.0`"),
    (("digests", "table.0"), 0, "`digests.table.0`"),
    (("digests", "table.2"), DIGEST, "`digests`"),
    (("digests",), {"table.0": DIGEST}, "`digests`"),
    (("trained_on",), "Friday", "`trained_on`"),
]


@pytest.mark.parametrize(("path", "wrong", "named"), CORRUPTIONS, ids=lambda value: str(value)[:40])
def test_each_field_is_checked_by_itself(values, path, wrong, named):
    with pytest.raises(MemoryFileError) as caught:
        recipe_from_json(spoiled(values, path, wrong))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_an_identity_of_another_memory_is_refused(values):
    values["identity"] = DIGEST
    with pytest.raises(MemoryFileError, match="`identity`"):
        recipe_from_json(json.dumps(values))


def test_what_a_later_writer_adds_is_passed_over(values, recipe):
    values["mood"] = "sunny"
    values["golden"][0]["order"] = 1
    values["hash"]["author"] = "somebody"
    values["identity"] = identity_of(values)
    assert recipe_from_json(json.dumps(values)).config == recipe.config


def test_keys_may_be_integers(values, recipe):
    for window in values["golden"]:
        window["key"] = int(window["key"])
    assert recipe_from_json(json.dumps(values)) == recipe


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "7", '"recipe"', "[" * 100_000, "9" * 5000, '{"version":NaN}', '{"version":1e999}', "\x00"],
    ids=lambda text: repr(text[:16]),
)
def test_what_is_no_recipe_is_refused(text):
    with pytest.raises(MemoryFileError, match=r"recipe|version"):
        recipe_from_json(text)


def test_text_that_is_no_unicode_is_refused(recipe):
    spoilt = recipe.to_json().replace('"prefix":"strip"', '"prefix":"strip","note":"\\ud800"')
    with pytest.raises(MemoryFileError, match="UTF-8"):
        recipe_from_json(spoilt)
