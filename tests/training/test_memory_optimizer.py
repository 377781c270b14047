"""One optimizer for trainers that take only one: the two rules that it is made of, and sparse gradients out of reach."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from setups import Setup
from torch import Tensor
from transformers import Trainer, TrainingArguments

from tokagnostic.errors import HostError, InvalidValueError
from tokagnostic.training.memory_optimizer import memory_optimizer
from tokagnostic.training.optim import dense_groups
from tokagnostic.training.table_optimizers import RowwiseRMSProp

IDS = [torch.randint(0, 250, (2, 13), generator=torch.Generator().manual_seed(seed)) for seed in range(6)]


def backward(setup: Setup, ids: Tensor) -> None:
    setup.model.train()
    setup.model(input_ids=ids, labels=ids, use_cache=False).loss.backward()


def values(setup: Setup) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in setup.model.named_parameters()}


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_it_is_adamw_and_the_rowwise_rule(make_setup: Callable[..., Setup]) -> None:
    ours, theirs = make_setup(), make_setup()
    (table,) = theirs.memory.store.tables
    dense = [(name, p) for name, p in theirs.model.named_parameters() if p is not table]
    apart = [
        torch.optim.AdamW(dense_groups(dense, 0.1), lr=1e-2),
        RowwiseRMSProp([table], lr=5e-2),
    ]
    one = memory_optimizer(ours.model, lr=1e-2, weight_decay=0.1)
    for ids in IDS:
        for setup, optimizers in ((ours, [one]), (theirs, apart)):
            backward(setup, ids)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    assert_same(values(ours), values(theirs))
    assert not torch.equal(values(ours)[next(iter(values(ours)))], values(make_setup())[next(iter(values(ours)))])


def test_gradients_add_up_until_the_step_and_are_forgotten_by_zero_grad(make_setup: Callable[..., Setup]) -> None:
    results = []
    for passes in ([IDS[0], IDS[1]], [IDS[2], None, IDS[0], IDS[1]]):
        setup = make_setup()
        # A fresh value projection lets no gradient through to the rows.
        torch.nn.init.ones_(setup.attachment.reader["1"].value.weight)
        optimizer = memory_optimizer(setup.model, lr=1e-2)
        for ids in passes:
            if ids is None:
                optimizer.zero_grad()
            else:
                backward(setup, ids)
        optimizer.step()
        results.append(values(setup))
    assert_same(*results)


def test_clipping_sees_no_sparse_gradient(setup: Setup) -> None:
    optimizer = memory_optimizer(setup.model, lr=1e-2)
    (table,) = setup.memory.store.tables
    before = table.detach().clone()
    torch.nn.init.ones_(setup.attachment.reader["1"].value.weight)
    backward(setup, IDS[0])
    assert table.grad is None
    torch.nn.utils.clip_grad_norm_(setup.model.parameters(), 1.0)
    optimizer.step()
    moved = (table != before).any(dim=1).nonzero().flatten()
    rows = setup.memory.rows(setup.attachment.hasher(IDS[0]))[:, :-1]
    assert moved.tolist() == rows[rows >= 0].unique().tolist()


def test_its_state_goes_on_where_it_was_saved(make_setup: Callable[..., Setup]) -> None:
    whole, first = make_setup(), make_setup()
    optimizer = memory_optimizer(whole.model, lr=1e-2)
    halves = [memory_optimizer(first.model, lr=1e-2)]
    for i, ids in enumerate(IDS):
        if i == 3:
            state = copy.deepcopy(halves[0].state_dict())
            halves.append(memory_optimizer(first.model, lr=1.0))
            del halves[0]
            gc.collect()
            halves[0].load_state_dict(state)
            assert halves[0].state[first.memory.store.tables[0]]["count"].dtype == torch.int32
        for setup, one in ((whole, optimizer), (first, halves[0])):
            backward(setup, ids)
            one.step()
            one.zero_grad()
    assert_same(values(whole), values(first))


def test_a_frozen_memory_and_a_frozen_host_are_left_out(make_setup: Callable[..., Setup]) -> None:
    setup = make_setup()
    setup.model.requires_grad_(False)
    setup.attachment.reader.requires_grad_(True)
    optimizer = memory_optimizer(setup.model, lr=1e-2)
    assert {group["name"] for group in optimizer.param_groups} == {"reader", "reader_norms"}
    setup.attachment.reader.requires_grad_(False)
    with pytest.raises(HostError, match="nothing is trainable"):
        memory_optimizer(setup.model, lr=1e-2)
    setup.attachment.memory.requires_grad_(True)
    assert [group["name"] for group in memory_optimizer(setup.model, lr=1e-2).param_groups] == ["table"]


def test_a_model_without_a_memory_and_a_wrong_rate_are_refused(setup: Setup) -> None:
    with pytest.raises(InvalidValueError, match="lr = 0"):
        memory_optimizer(setup.model, lr=0)
    setup.attachment.remove()
    with pytest.raises(HostError, match="without a memory"):
        memory_optimizer(setup.model, lr=1e-2)


class TestTrainer:
    """transformers' Trainer with its defaults."""

    def trainer(
        self, setup: Setup, folder: Path, optimizer: torch.optim.Optimizer | None, **settings: object
    ) -> Trainer:
        rows = torch.cat(IDS).tolist()
        arguments = TrainingArguments(
            str(folder),
            max_steps=3,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            **{"per_device_train_batch_size": 2, **settings},
        )
        data = Dataset.from_dict({"input_ids": rows, "labels": rows})
        return Trainer(setup.model, arguments, train_dataset=data, optimizers=(optimizer, None))

    @pytest.mark.parametrize("accumulation", [1, 2])
    def test_it_trains_host_reader_and_table_on_its_schedule(
        self, setup: Setup, tmp_path: Path, accumulation: int
    ) -> None:
        before = values(setup)
        optimizer = memory_optimizer(setup.model, lr=1e-2)
        self.trainer(setup, tmp_path, optimizer, gradient_accumulation_steps=accumulation).train()
        # A value projection of zeros lets no gradient through to keys and rows in the first update, but in later ones.
        assert not [name for name, value in values(setup).items() if torch.equal(value, before[name])]
        rates = {group.get("name"): (group["initial_lr"], group["lr"]) for group in optimizer.param_groups}
        assert rates["table"] == (5e-2, 0.0) and rates["reader"] == (1e-2, 0.0)

    def test_its_own_optimizer_will_do_for_a_frozen_memory(self, setup: Setup, tmp_path: Path) -> None:
        setup.memory.freeze()
        before = values(setup)
        self.trainer(setup, tmp_path, None).train()
        same = [name for name, value in values(setup).items() if torch.equal(value, before[name])]
        assert same == ["tokagnostic.memory.store.tables.0"]

    def test_without_it_a_trained_table_is_refused_by_torch(self, setup: Setup, tmp_path: Path) -> None:
        """What the docstring says of trainers that make their own optimizer."""
        with pytest.raises(NotImplementedError, match="aten::linalg_vector_norm"):
            self.trainer(setup, tmp_path, None).train()


def sparse_loss(setup: Setup, ids: Tensor) -> Tensor:
    """A loss that reaches the table and one parameter of the host."""
    return (setup.memory(ids) ** 2).sum() + (next(setup.model.parameters()) ** 2).sum()


@pytest.mark.parametrize("clip_norm", [0.0, 0.01, 1e6])
@pytest.mark.parametrize("rule", ["rowwise_rmsprop", "rowwise_adam", "lazy_adam"])
def test_accumulation_is_one_joint_batch_bit_for_bit(make_setup: Callable[..., Setup], rule, clip_norm) -> None:
    """Also where the joint norm is clipped."""
    parted, joint = make_setup(), make_setup()
    for setup, batches in ((parted, IDS[:3]), (joint, [torch.cat(IDS[:3])])):
        optimizer = memory_optimizer(setup.model, lr=1e-2, table_optimizer=rule, clip_norm=clip_norm)
        for _ in range(2):
            for ids in batches:
                (setup.memory(ids) ** 2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert_same(values(parted), values(joint))


@pytest.mark.parametrize("scale", [1.0, 2.0**10])
@pytest.mark.parametrize("clips", [False, True], ids=["unclipped", "clipped"])
def test_a_scaled_loss_makes_the_same_step(make_setup: Callable[..., Setup], scale: float, clips: bool) -> None:
    """The table's gradients are hidden from the scaler, and divided by its scale all the same."""
    scaled, plain = make_setup(), make_setup()
    one = memory_optimizer(scaled.model, lr=1e-2, clip_norm=0.01 if clips else 0.0)
    other = memory_optimizer(plain.model, lr=1e-2, clip_norm=0.01 if clips else 0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    for ids in IDS[:3]:
        for part in ids:
            scaler.scale(sparse_loss(scaled, part[None])).backward()
            sparse_loss(plain, part[None]).backward()
        scaler.unscale_(one)
        scaler.step(one)
        scaler.update()
        other.step()
        one.zero_grad()
        other.zero_grad()
    assert_same(values(scaled), values(plain))
    (table,) = scaled.memory.store.tables
    assert not torch.equal(table, make_setup().memory.store.tables[0])


def test_a_scaled_loss_that_overflows_in_the_table_alone_makes_no_step(make_setup: Callable[..., Setup]) -> None:
    setup = make_setup()
    before = values(setup)
    optimizer = memory_optimizer(setup.model, lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(sparse_loss(setup, IDS[0])).backward()
    scaler.scale((setup.memory(IDS[1]) * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    assert_same(values(setup), before)
    assert scaler.get_scale() == 2.0
    sparse_loss(setup, IDS[2]).backward()
    optimizer.step()
    assert all(bool(torch.isfinite(value).all()) for value in values(setup).values())


def test_clipping_counts_the_table_as_a_dense_computation_would(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """AdamW's state tells what gradient it was given."""
    optimizer = memory_optimizer(setup.model, lr=1e-2, clip_norm=0.01)
    gradients: list[Tensor] = []
    take = optimizer.take
    monkeypatch.setattr(optimizer, "take", lambda table: (gradients.append(table.grad), take(table)))
    sparse_loss(setup, IDS[0]).backward()
    host = next(setup.model.parameters())
    dense = [host.grad.clone(), gradients[0].to_dense()]
    norm = torch.cat([gradient.flatten() for gradient in dense]).norm()
    optimizer.step()
    expected = dense[0] * 0.01 / norm * (1 - 0.9)
    torch.testing.assert_close(optimizer.state[host]["exp_avg"], expected)


@pytest.mark.parametrize(
    "wrong", [{"clip_norm": -1.0}, {"clip_norm": float("nan")}, {"table_optimizer": "adam"}], ids=str
)
def test_an_impossible_norm_and_an_unknown_rule_are_refused(setup: Setup, wrong) -> None:
    with pytest.raises(InvalidValueError):
        memory_optimizer(setup.model, lr=1e-2, **wrong)
