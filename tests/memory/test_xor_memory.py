"""Engram as published: rows against the oracle and against a released architecture, its file, and its one tokenizer."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from tests import naive_xor
from tokagnostic.errors import InvalidValueError, MemoryFileError
from tokagnostic.evaluation.coverage import coverage
from tokagnostic.hashing import HashCache
from tokagnostic.memory import MemoryConfig, XorConfig, load_memory, read_recipe, save_memory
from tokagnostic.memory.container import bytes_of
from tokagnostic.memory.controls import load_reading
from tokagnostic.memory.file import verify_memory
from tokagnostic.memory.recipe import MemoryRecipe, canonical_json, identity_of
from tokagnostic.memory.recipe_reader import recipe_from_json
from tokagnostic.memory.xor_addresser import XorAddresser
from tokagnostic.tokens.token_bytes import TokenBytes

SMALL = XorConfig(max_order=3, num_rows=101, num_heads=3, dim=5, num_tables=2, layers=(1, 15))


@pytest.fixture
def xor(cache):
    return SMALL.build(cache)


@pytest.fixture
def xor_file(xor, path):
    save_memory(xor, path, layers=(1, 15))
    return path


def flat_moduli(table: int) -> list[int]:
    """All primes of a table, order by order."""
    return [modulus for heads in naive_xor.moduli_of(101, 2, 2, 3)[table] for modulus in heads]


def oracle_rows(memory, tokens, ids, starts, table: int) -> list:
    """Rows with their offsets, per position, order 1..N and head; those of order 1 are missing."""
    config = memory.config
    canonical = naive_xor.canonical_ids(tokens)
    codes = [canonical[i] if i >= 0 and tokens[i] else None for i in ids]
    num_ids = max(canonical) + 2
    orders = range(2, config.max_order + 1)
    moduli = naive_xor.moduli_of(config.num_rows, config.num_tables, len(orders), config.num_heads)[table]
    multipliers = naive_xor.multipliers_of(config.layers[table], config.max_order, num_ids, config.seed)
    flat = [modulus for heads in moduli for modulus in heads]
    found = []
    for orders_of in naive_xor.rows(codes, starts, orders, multipliers, moduli, pad=num_ids - 1):
        rows, place = [[-1] * config.num_heads], 0
        for heads in orders_of:
            rows.append([row if row < 0 else sum(flat[: place + k]) + row for k, row in enumerate(heads)])
            place += len(heads)
        found.append(rows)
    return found


@pytest.mark.parametrize("table", [0, 1])
def test_rows_are_those_of_the_oracle(xor, vocabulary, ids, table):
    starts = torch.zeros_like(ids, dtype=torch.bool)
    starts[:, 0] = starts[1, 4] = True
    rows = xor.rows(xor.hasher(ids, starts), table)
    for b in range(2):
        expected = oracle_rows(xor, vocabulary.tokens, ids[b].tolist(), starts[b].tolist(), table)
        assert rows[b].tolist() == expected


def test_features_are_the_rows_order_by_order(xor, ids):
    rows, features = xor.rows(xor.hasher(ids), 1), xor(ids, layer=1).view(2, 9, 3, 3, 5)
    expected = xor.store.tables[1][rows.clamp(min=0)].masked_fill((rows < 0).unsqueeze(-1), 0)
    assert torch.equal(features, expected)
    assert not features[:, :, 0].any()


def test_training_reads_what_serving_reads(xor, ids):
    serving = xor(ids, layer=1).detach()
    assert torch.equal(xor.train()(ids, layer=1), serving)
    with torch.no_grad():
        assert torch.equal(xor.eval()(ids, layer=1), serving)


def test_orders_layers_and_heads_share_no_prime(xor):
    primes = [modulus for table in xor.addresser.moduli for modulus in table]
    assert len(set(primes)) == len(primes) == 2 * 2 * 3
    assert min(primes) == 101


def test_its_numbers_are_those_of_its_tokenizer(xor, vocabulary):
    num_canonical = len(set(naive_xor.canonical_ids(vocabulary.tokens)))
    assert xor.config.num_ids == num_canonical + 1 < len(vocabulary.tokens)
    assert xor.config.tokenizer == vocabulary.cache.token_fingerprint
    assert xor.hasher.pad_id == num_canonical


def test_single_tokens_have_rows_if_asked(cache, ids):
    memory = dataclasses.replace(SMALL, min_order=1).build(cache)
    rows = memory.rows(memory.hasher(ids))
    assert ((rows >= 0) == (memory.hasher(ids) >= 0).unsqueeze(-1)).all()
    assert rows[0, 0, 0].min() >= 0
    assert len(memory.addresser.moduli[0]) == 9


def test_fewer_orders_read_the_same_rows_and_more_are_refused(xor_file, xor, cache, ids):
    two = load_memory(xor_file, cache, max_order=2)
    assert torch.equal(two(ids), xor(ids)[..., : two.feature_dim])
    for order in (1, 4):
        with pytest.raises(InvalidValueError, match=f"max_order = {order} for a memory of orders 2 to 3"):
            load_memory(xor_file, cache, max_order=order)
    with pytest.raises(InvalidValueError, match="max_order = 1"):
        load_reading("order1", xor_file, cache, seed=0)


@pytest.mark.parametrize("row_format", ["bf16", "int8", "fp8_e4m3"])
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "copied"])
def test_other_row_formats_read_the_same_rows(xor, path, cache, ids, row_format, mapped):
    save_memory(xor, path, row_format=row_format)
    again = load_memory(path, cache, mapped=mapped)
    torch.testing.assert_close(again(ids, layer=1).float(), xor(ids, layer=1), rtol=0.1, atol=2e-3)
    rows = again.rows(again.hasher(ids), 1)
    assert torch.equal(again(ids, layer=1), again.store(rows, 1))
    assert not again(ids, layer=1)[(rows < 0).repeat_interleave(5, -1).flatten(2)].any()


def test_another_tokenizer_is_refused(xor_file, xor, other_vocabulary):
    with pytest.raises(InvalidValueError, match="under another one its rows mean nothing"):
        load_memory(xor_file, other_vocabulary.cache)
    with pytest.raises(InvalidValueError, match="under another one its rows mean nothing"):
        xor.config.hasher(other_vocabulary.cache)


def test_another_tokenizer_of_the_same_canonical_ids_is_refused_too(path):
    mine, other = (HashCache.build(TokenBytes.from_list(tokens)) for tokens in ([b"a", b"b"], [b"a", b"c"]))
    assert mine.canonical_ids.tolist() == other.canonical_ids.tolist()
    save_memory(SMALL.build(mine), path)
    with pytest.raises(InvalidValueError, match="under another one its rows mean nothing"):
        load_memory(path, other)


def test_what_a_table_is_worth_under_another_tokenizer_can_be_measured(xor, other_vocabulary):
    """By saying so: given rows are read by the ids of whom the memory is built for."""
    config = dataclasses.replace(xor.config, tokenizer="", num_ids=400)
    other = config.build(other_vocabulary.cache, tables=list(xor.store.tables))
    assert other(torch.tensor([other_vocabulary.encode(b"internal memory")])).any()
    assert other.config.tokenizer == other_vocabulary.cache.token_fingerprint


def test_a_host_with_more_ids_reads_the_same(xor_file, xor, cache, ids):
    assert torch.equal(load_memory(xor_file, cache.padded(cache.num_ids + 50))(ids), xor(ids))


def test_a_cache_without_its_tokens_is_refused_in_one_line(xor_file, cache, tmp_path):
    cache.save(tmp_path / "cache.safetensors")
    with pytest.raises(InvalidValueError, match="a hash cache without its tokens") as caught:
        load_memory(xor_file, HashCache.load(tmp_path / "cache.safetensors"))
    assert "\n" not in str(caught.value)


def test_coverage_is_refused_for_it(xor, byte_toy):
    with pytest.raises(InvalidValueError, match="a memory of kind xor"):
        coverage(["a text"], byte_toy(()), xor)


class TestFile:
    @pytest.fixture
    def values(self, xor_file) -> dict:
        return json.loads(read_recipe(xor_file).to_json())

    def test_it_states_multipliers_pad_id_and_primes(self, xor, values):
        config = xor.config
        multipliers = [naive_xor.multipliers_of(layer, 3, config.num_ids) for layer in (1, 15)]
        assert [[int(number) for number in table] for table in values["hash"]["multipliers"]] == multipliers
        assert (values["hash"]["law"], values["hash"]["pad_id"]) == ("multiplicative_xor", config.num_ids - 1)
        assert [table["moduli"] for table in values["tables"]] == [flat_moduli(0), flat_moduli(1)]
        assert values["config"]["tokenizer"] == config.tokenizer
        assert set(values["digests"]) == {"canonical_ids", "table.0", "table.1", "visits.0", "visits.1"}

    def test_its_golden_windows_have_the_rows_of_the_oracle(self, values):
        assert len(values["golden"]) == len({tuple(window["ids"]) for window in values["golden"]}) == 16
        for window in values["golden"]:
            for table, layer in enumerate((1, 15)):
                numbers = naive_xor.multipliers_of(layer, 3, values["hash"]["num_ids"])
                flat = flat_moduli(table)
                mixes = [naive_xor.mix(window["ids"][:order], numbers) for order in (2, 3) for _ in range(3)]
                rows = [sum(flat[:k]) + mix % modulus for k, (mix, modulus) in enumerate(zip(mixes, flat, strict=True))]
                assert window["rows"][table] == rows

    @pytest.mark.parametrize("name", ["law", "multipliers", "num_ids", "pad_id", "min_order"])
    def test_a_missing_part_of_its_law_is_named(self, values, name):
        del values["hash"][name]
        with pytest.raises(MemoryFileError, match=rf"`hash\.{name}` is missing"):
            recipe_from_json(json.dumps(values))

    @pytest.mark.parametrize(
        ("place", "wrong", "named"),
        [
            (("hash", "multipliers"), [["1", "3", "5"]] * 2, "`hash.multipliers`"),
            (("hash", "pad_id"), 0, "`hash.pad_id`"),
            (("hash", "law"), "poly31x2", "`hash.law`"),
            (("config", "num_ids"), "auto", "`config`"),
            (("config", "num_ids"), 2**40, "num_ids"),
            (("config", "tokenizer"), "", "`config`"),
            (("config", "layers"), [1], "layers"),
            (("config", "layers"), [2, 15], "`hash.multipliers`"),
            (("config", "seed"), 1, "`hash.multipliers`"),
            (("config", "pad_id"), 10**6, "pad_id"),
            (("config", "num_tables"), 10**9, "num_tables"),
            (("config", "max_order"), 10**9, "max_order"),
            (("config", "num_heads"), 10**9, "`tables"),
            (("golden", 3, "ids"), [1, 2], "`golden[3].ids`"),
            (("golden", 3, "ids"), [1, 2, -1], "`golden[3].ids`"),
            (("golden", 3, "ids"), "ab", "`golden[3].ids`"),
            (("golden", 3, "ids"), [1, 2, 3], "`golden[3].rows`"),
            (("golden", 3, "rows"), [], "`golden[3].rows`"),
            (("digests",), {}, "`digests`"),
        ],
        ids=str,
    )
    def test_each_field_is_checked(self, values, place, wrong, named):
        parent = values
        for part in place[:-1]:
            parent = parent[part]
        parent[place[-1]] = wrong
        values["identity"] = identity_of(values)
        with pytest.raises(MemoryFileError) as caught:
            recipe_from_json(canonical_json(values).decode())
        assert named in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_other_canonical_ids_than_the_tokenizers_are_refused(self, xor_file, cache):
        """A byte of the map is turned: mapped files, whose tables nobody hashes, are refused too."""
        needle = bytes_of(torch.from_numpy(cache.canonical_ids)).tobytes()
        data = bytearray(xor_file.read_bytes())
        place = data.index(needle)
        data[place + 4 * 100] ^= 1
        xor_file.write_bytes(data)
        with pytest.raises(MemoryFileError, match="`canonical_ids` differs"):
            load_memory(xor_file, cache, mapped=True)
        with pytest.raises(MemoryFileError, match="`canonical_ids` has the digest"):
            verify_memory(xor_file)

    def test_its_recipe_survives_json(self, xor_file):
        recipe = read_recipe(xor_file)
        assert recipe_from_json(recipe.to_json()) == recipe
        assert isinstance(recipe, MemoryRecipe)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_order", 3), ("max_order", 65), ("max_order", 1), ("num_tables", 1025), ("num_ids", 0), ("num_ids", "all"),
        ("num_ids", 2**31 + 1), ("pad_id", -1), ("pad_id", True), ("layers", (1, -1)), ("layers", "12"), ("layers", (1, 2, 3)),
        ("layers", (1.0, 2)), ("tokenizer", 5),
    ],
    ids=str,
)  # fmt: skip
def test_a_setting_that_cannot_be_used_is_named(field, value):
    with pytest.raises(InvalidValueError, match=field):
        dataclasses.replace(SMALL, **{field: value})


def test_a_pad_id_that_no_canonical_id_is_is_refused():
    with pytest.raises(InvalidValueError, match="pad_id = 9"):
        XorConfig(num_ids=9, pad_id=9)


def test_layers_survive_json():
    assert MemoryConfig.from_dict(json.loads(json.dumps(SMALL.to_dict()))) == SMALL


def test_ngram_ids_are_those_of_a_released_architecture():
    """Row for row `qwen4_exp` of transformers, whose multipliers are drawn otherwise; it too fills in the end-of-text id."""
    modeling = pytest.importorskip(
        "transformers.models.qwen4_exp.modeling_qwen4_exp", reason="transformers lacks qwen4_exp"
    )
    configuration = pytest.importorskip("transformers.models.qwen4_exp.configuration_qwen4_exp")
    eos, num_ids = 3, 97
    config = configuration.Qwen4ExpTextConfig(
        vocab_size=num_ids, ngram_size=4, heads_per_ngram=2, ngram_vocab_size_base=1009, eos_token_id=eos, seed=1234
    )
    tokens = [None if i == eos else b"w%d" % i for i in range(num_ids)]
    memory_config = XorConfig(max_order=4, num_rows=1009, num_heads=2, dim=2, num_tables=2, num_ids=num_ids, pad_id=eos)
    memory = memory_config.build(HashCache.build(TokenBytes.from_list(tokens)))
    ids = torch.randint(0, num_ids, (3, 40), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[0, 7], ids[1, 20] = 5, eos, eos
    for index in range(2):
        module = modeling.Qwen4ExpTextNGramEmbedding(config, embedding_dim=12, layer_idx=0, ple_layer_index=index)
        seen = []
        module.ngram_embedding.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0]))
        module(ids, None)
        multipliers = [module.layer_multipliers.tolist()] * 2
        addresser = XorAddresser(1009, 2, 2, (2, 4), multipliers)
        assert addresser.moduli[index] == module.head_vocab_sizes
        assert addresser.offsets[index] == module.head_offsets
        rows = addresser(memory.hasher(ids), index)[:, :, 1:].flatten(2)
        real = ids != eos
        # At the end-of-text id itself that architecture reads rows, and this law none.
        assert torch.equal(rows[real], seen[0][real])
        assert (rows[~real] == -1).all()
