"""Rows in eight bits a number, against plain numbers: what is written, what is read, what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.memory.naive_quantised import code_value, quantised_rows, unpacked_rows
from tokagnostic.errors import InvalidValueError, MemoryFileError
from tokagnostic.hashing.rows import HeadRows
from tokagnostic.memory import load_memory, read_recipe, save_memory
from tokagnostic.memory.container import bytes_of
from tokagnostic.memory.controls import load_reading
from tokagnostic.memory.file import verify_memory
from tokagnostic.memory.gather_numba import FEW, can_gather
from tokagnostic.memory.quantised import CODE_DTYPES, QuantisedRows
from tokagnostic.memory.quantised_store import QuantisedStore
from tokagnostic.memory.recipe import identity_of
from tokagnostic.memory.same_rows import has_rows_of

FORMATS = list(CODE_DTYPES)
every_format = pytest.mark.parametrize("row_format", FORMATS)

finite = st.floats(-(2.0**100), 2.0**100, width=32)


def unpacked(rows: QuantisedRows) -> np.ndarray:
    codes = np.frombuffer(bytes_of(rows.codes.contiguous()), np.uint8).reshape(rows.codes.shape)
    row_format = next(name for name, dtype in CODE_DTYPES.items() if dtype == rows.codes.dtype)
    return unpacked_rows(codes, rows.scales.numpy(), row_format)


def random_rows(num_rows: int, dim: int, row_format: str, block_size: int, seed: int = 0) -> QuantisedRows:
    numbers = torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(seed))
    return QuantisedRows.of(numbers, CODE_DTYPES[row_format], block_size)


@pytest.mark.parametrize("code", range(256))
def test_every_code_stands_for_the_number_of_its_bits(code):
    for row_format, dtype in CODE_DTYPES.items():
        value = torch.tensor([code], dtype=torch.uint8).view(dtype).float()
        assert np.array_equal(value.numpy(), [code_value(code, row_format)], equal_nan=True)


@every_format
@settings(deadline=None)
@given(numbers=st.lists(finite, min_size=12, max_size=12), block_size=st.sampled_from([1, 2, 3, 6]))
def test_codes_and_scales_are_those_of_plain_arithmetic(row_format, numbers, block_size):
    rows = torch.tensor(numbers, dtype=torch.float32).view(2, 6)
    found = QuantisedRows.of(rows, CODE_DTYPES[row_format], block_size)
    codes, scales = quantised_rows(rows.numpy(), row_format, block_size)
    assert found.scales.tolist() == scales
    values = [[code_value(code, row_format) for code in row] for row in found.codes.view(torch.uint8).tolist()]
    assert values == codes


@every_format
@settings(deadline=None)
@given(
    keys=st.lists(st.integers(-1, 2**62 - 1) | st.just(-1), max_size=12),
    max_order=st.integers(1, 3),
    moduli=st.sampled_from([[2], [4099, 4111, 4127], [13, 4099], [4099] * 9]),
    sizes=st.sampled_from([(1, 1), (6, 3), (16, 16), (12, 2)]),
)
def test_a_lookup_equals_looking_up_in_the_unpacked_table(row_format, keys, max_order, moduli, sizes):
    heads, keys = HeadRows(moduli), keys[: len(keys) // max_order * max_order]
    windows = torch.tensor(keys, dtype=torch.int64).view(max_order, 1, -1).permute(1, 2, 0)
    table = random_rows(sum(moduli), sizes[0], row_format, sizes[1])
    store = QuantisedStore([table])
    rows = heads(windows)
    whole = torch.from_numpy(unpacked(table))
    expected = (whole[rows.clamp(min=0)] * (rows >= 0).unsqueeze(-1)).flatten(-3)
    assert can_gather(table.codes, windows)
    for found in (store.read(windows, heads), store(rows)):
        assert found.dtype == torch.float32 and torch.equal(found, expected)


def test_many_keys_read_what_few_read():
    heads, store = HeadRows([4099]), QuantisedStore([random_rows(4099, 8, "fp8_e4m3", 4)])
    many = torch.arange(FEW + 1).view(1, -1, 1)
    assert torch.equal(store.read(many, heads)[:, :5], store.read(many[:, :5], heads))
    with pytest.raises(IndexError, match="row 4098"):
        QuantisedStore([random_rows(4098, 8, "int8", 4)]).read(torch.tensor([[[4098]]]), heads)


@every_format
def test_any_safetensors_reader_reads_it(trained, path, row_format):
    report = save_memory(trained, path, row_format, block_size=5)
    recipe = read_recipe(path)
    assert (recipe.row_format, recipe.block_size, recipe.identity) == (row_format, 5, report.identity)
    with safe_open(path, framework="pt") as file:
        assert set(file.keys()) == {f"{name}.{i}" for name in ("table", "scale", "visits") for i in range(2)}
        for i, table in enumerate(trained.store.tables):
            expected = QuantisedRows.of(table.detach(), CODE_DTYPES[row_format], 5)
            assert torch.equal(file.get_tensor(f"scale.{i}"), expected.scales)
            assert torch.equal(file.get_tensor(f"table.{i}").view(torch.uint8), expected.codes.view(torch.uint8))
    exact = torch.cat([table.detach().double().flatten() for table in trained.store.tables])
    read = torch.cat(
        [torch.from_numpy(unpacked(t)).double().flatten() for t in load_memory(path, trained.hasher.cache).store.tables]
    )
    assert report.max_rounding == float((exact - read).abs().max()) > 0
    assert report.relative_rounding == pytest.approx(float((exact - read).norm() / exact.norm()))


@every_format
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "copied"])
def test_a_memory_reads_its_rows_as_they_are_stored(trained, path, cache, ids, row_format, mapped):
    save_memory(trained, path, row_format)
    memory = load_memory(path, cache, mapped=mapped)
    memory.train()
    assert memory.frozen and memory.is_as_in_file and list(memory.parameters()) == []
    assert all(table.codes.dtype == CODE_DTYPES[row_format] for table in memory.store.tables)
    for layer in range(2):
        rows = memory.rows(memory.hasher(ids), layer)
        whole = torch.from_numpy(unpacked(memory.store.tables[layer]))
        expected = (whole[rows.clamp(min=0)] * (rows >= 0).unsqueeze(-1)).flatten(-3)
        assert torch.equal(memory(ids, layer=layer), expected)
    assert all(torch.equal(a.counts, b.counts) for a, b in zip(memory.visits, trained.visits, strict=True))


@every_format
def test_training_from_it_copies_to_single_precision(trained, path, cache, ids, row_format):
    save_memory(trained, path, row_format)
    before, frozen = path.read_bytes(), load_memory(path, cache)
    memory = load_memory(path, cache, trainable=True)
    assert torch.equal(memory.eval()(ids), frozen(ids))
    memory.train()(ids).sum().backward()
    assert memory.store.tables[0].dtype == torch.float32 and memory.store.tables[0].grad.is_sparse
    assert path.read_bytes() == before


@every_format
def test_stored_again_it_is_the_same_file(trained, path, cache, row_format):
    save_memory(trained, path, row_format, {"a": 1}, (1, 3))
    memory = load_memory(path, cache, mapped=False)
    again = path.with_name("again")
    report = save_memory(memory, again, row_format, {"a": 1}, (1, 3))
    assert again.read_bytes() == path.read_bytes() and report.max_rounding == 0
    assert has_rows_of(read_recipe(path), memory)
    save_memory(memory, again)
    exact = load_memory(again, cache)
    for table, rows in zip(memory.store.tables, exact.store.tables, strict=True):
        assert np.array_equal(unpacked(table), rows.detach().numpy())
    assert has_rows_of(read_recipe(again), memory) and has_rows_of(read_recipe(path), trained)
    with torch.no_grad():
        trained.store.tables[0][0] += 1
    assert not has_rows_of(read_recipe(path), trained)


@every_format
def test_a_cast_of_the_model_leaves_the_codes(trained, path, cache, ids, row_format):
    save_memory(trained, path, row_format)
    memory = load_memory(path, cache)
    before = memory(ids)
    memory.half().requires_grad_(True)
    assert torch.equal(memory(ids), before) and memory.frozen and memory.is_as_in_file


@every_format
@pytest.mark.parametrize("reading", ["random", "permuted", "order1"])
def test_what_is_read_in_its_place_is_made_of_its_rows(trained, path, cache, row_format, reading):
    save_memory(trained, path, row_format)
    own = load_memory(path, cache)
    other = load_reading(reading, path, cache, seed=3)
    assert other.frozen
    whole = torch.from_numpy(unpacked(own.store.tables[0]))
    if reading == "order1":
        assert other.max_order == 1 and torch.equal(torch.from_numpy(unpacked(other.store.tables[0])), whole)
        return
    table = other.store.tables[0].detach()
    assert not torch.equal(table, whole)
    if reading == "permuted":
        assert torch.equal(table.sort(dim=0).values, whole.sort(dim=0).values)
    else:
        assert torch.allclose(table.norm(dim=1), whole.norm(dim=1), rtol=1e-5)


def test_the_usual_block_is_at_most_32(make_memory, path):
    for dim, block in ((5, 5), (64, 32), (40, 20), (37, 1)):
        save_memory(make_memory(dim=dim), path, "int8")
        assert read_recipe(path).block_size == block


@pytest.mark.parametrize(
    ("row_format", "block_size", "message"),
    [
        ("int8", 2, "block_size = 2 for rows of 5 numbers; expected a divisor of 5"),
        ("fp8_e4m3", 0, "expected a divisor of 5"),
        ("int8", True, "expected a divisor of 5"),
        ("bf16", 5, "block_size = 5 for rows in bf16"),
    ],
)
def test_a_block_that_does_not_fit_is_refused(trained, path, row_format, block_size, message):
    with pytest.raises(InvalidValueError, match=message):
        save_memory(trained, path, row_format, block_size=block_size)


@every_format
@pytest.mark.parametrize("wrong", [float("inf"), float("nan")], ids=repr)
def test_a_row_that_is_not_finite_is_refused(trained, path, row_format, wrong):
    with torch.no_grad():
        trained.store.tables[1][5, 2] = wrong
    with pytest.raises(InvalidValueError, match=rf"`table\.1` holds .*{row_format} cannot store"):
        save_memory(trained, path, row_format)
    assert list(path.parent.iterdir()) == []


class TestBadFiles:
    @pytest.fixture(params=FORMATS)
    def file(self, request, trained, path) -> Path:
        save_memory(trained, path, request.param, block_size=1)
        return path

    def rewrite(self, path: Path, change, **replaced: np.ndarray) -> None:
        """Tensors and words of a file changed, digests and identity made to fit."""
        with safe_open(path, framework="pt") as file:
            values = json.loads(file.metadata()["tokagnostic"])
        tensors = load_file(path)
        tensors.update({name.replace("_", "."): tensor for name, tensor in replaced.items()})
        change(values)
        values["digests"] = {name: hashlib.sha256(bytes_of(t.contiguous())).hexdigest() for name, t in tensors.items()}
        values["identity"] = identity_of(values)
        save_file({n: t.contiguous() for n, t in tensors.items()}, path, {"tokagnostic": json.dumps(values)})

    @pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")], ids=repr)
    def test_a_scale_that_is_no_number(self, file, cache, wrong):
        scales = load_memory(file, cache, mapped=False).store.tables[1].scales
        scales[7, 3] = wrong
        self.rewrite(file, lambda values: None, scale_1=scales)
        for refused in (lambda: verify_memory(file), lambda: load_memory(file, cache, mapped=False)):
            with pytest.raises(MemoryFileError, match=r"`scale\.1` holds what is no finite number") as caught:
                refused()
            assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("code", [0x7F, 0xFF])
    def test_a_code_that_is_no_number(self, trained, path, cache, code):
        save_memory(trained, path, "fp8_e4m3")
        codes = load_memory(path, cache, mapped=False).store.tables[0].codes
        codes.view(torch.uint8)[3, 1] = code
        self.rewrite(path, lambda values: None, table_0=codes)
        with pytest.raises(MemoryFileError, match=r"`table\.0` holds what is no finite number"):
            load_memory(path, cache, verify=True)

    @pytest.mark.parametrize("shape", [(-1, 1), (5, -1), (-1,)], ids=str)
    def test_scales_of_another_shape(self, file, cache, shape):
        scales = load_memory(file, cache, mapped=False).store.tables[0].scales
        self.rewrite(file, lambda values: None, scale_0=scales.reshape(shape))
        with pytest.raises(MemoryFileError, match=r"the tensor `scale\.0` is F32 \["):
            load_memory(file, cache)

    @pytest.mark.parametrize(
        ("block_size", "named"),
        [(None, "`config.block_size` is None"), (2, "`config.block_size` is 2"), (1.0, "`config.block_size` is 1.0"),
         (5, "the tensor `scale.0`"), ("1", "`config.block_size`")],
    )  # fmt: skip
    def test_another_block(self, file, cache, block_size, named):
        self.rewrite(file, lambda values: values["config"].update(block_size=block_size))
        with pytest.raises(MemoryFileError) as caught:
            load_memory(file, cache)
        assert named in str(caught.value) and "\n" not in str(caught.value)

    def test_scales_that_are_missing(self, file, cache):
        tensors = {name: tensor for name, tensor in load_file(file).items() if name != "scale.1"}
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata()
        save_file(tensors, file, metadata)
        with pytest.raises(MemoryFileError, match=r"tensor `scale\.1` is missing"):
            load_memory(file, cache)


@pytest.mark.parametrize("row_format", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")], ids=repr)
def test_rows_of_other_formats_that_are_no_numbers_are_found_too(trained, path, cache, row_format, wrong):
    save_memory(trained, path, row_format)
    memory = load_memory(path, cache, mapped=False)
    rows = memory.store.tables[0].detach()
    rows[0, 0] = wrong
    TestBadFiles().rewrite(path, lambda values: None, table_0=rows)
    with pytest.raises(MemoryFileError, match=r"`table\.0` holds what is no finite number"):
        load_memory(path, cache, verify=True)
