"""A finished run to a memory file of its own, in any row format, whole or its hot rows, with the visits of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from tokagnostic.errors import InvalidValueError
from tokagnostic.hashing import HashCache
from tokagnostic.host.saving import CONFIG_FILE
from tokagnostic.memory.base import NgramMemory
from tokagnostic.memory.file import SaveReport, load_memory, read_recipe, save_memory
from tokagnostic.memory.hot import HotRows, keep_hot_rows
from tokagnostic.memory.recipe import MemoryRecipe, RowFormat
from tokagnostic.memory.visits import merged_visits
from tokagnostic.tokens import TokenBytes
from tokagnostic.training.run import memory_file_of


@dataclass(frozen=True)
class Exported:
    """What was written."""

    file: SaveReport
    hot: HotRows | None
    """What was kept, if not all rows were."""


def export_memory(
    folder: str | Path,
    path: str | Path,
    row_format: RowFormat = "fp32",
    *,
    hot_rows: int | None = None,
    merge_visits: Sequence[str | Path] = (),
    visits_base: str | Path | None = None,
) -> Exported:
    """Write the memory of a finished run to a file of its own. What was cut or merged stands in its `trained_on`.

    Args:
        folder: of the run.
        path: the file.
        row_format: how rows are stored.
        hot_rows: rows to keep in each table, see `keep_hot_rows`; by default all.
        merge_visits: other runs, or memory files, whose visits are added, see `merged_visits`.
        visits_base: the run or file that all of them started from; by default fresh tables, without a visit.

    Raises:
        SourceError: if a folder holds no finished run.
        InvalidValueError: if the rows do not fit the format, or visits are to be merged that count other rows.
        MemoryFileError: if a file cannot be believed, or the new one not be written.
    """
    if visits_base is not None and not merge_visits:
        raise InvalidValueError(
            f"visits_base = {str(visits_base)!r} without merge_visits",
            expected="other runs from the same start, whose visits shall be added",
            remedy="Name them with merge_visits, or leave visits_base out",
        )
    source = memory_file_of(folder)
    _refuse_place(Path(path))
    recipe, memory = _opened(source, mapped=False)
    trained_on = dict(recipe.trained_on or {})
    if merge_visits:
        others = [_opened(_file_of(other), like=recipe) for other in merge_visits]
        base = None if visits_base is None else _opened(_file_of(visits_base), like=recipe)
        _refuse_one_run_twice([(recipe, memory), *others])
        for table, visits in enumerate(memory.visits):
            all_counts = [visits.counts, *(other.visits[table].counts for _, other in others)]
            visits.counts = merged_visits(all_counts, None if base is None else base[1].visits[table].counts)
        trained_on["visits_of"] = [recipe.identity, *(other.identity for other, _ in others)]
        if base is not None:
            trained_on["visits_since"] = base[0].identity
    hot = None if hot_rows is None else keep_hot_rows(memory, hot_rows)
    if hot is not None:
        trained_on["hot_rows"] = asdict(hot)
    layers = [layer for table in recipe.tables for layer in table.layers]
    report = save_memory(memory, path, row_format, trained_on or None, layers)
    return Exported(report, hot)


def _file_of(run_or_file: str | Path) -> Path:
    path = Path(run_or_file)
    return memory_file_of(path) if path.is_dir() else path


def _opened(path: Path, *, mapped: bool = True, like: MemoryRecipe | None = None) -> tuple[MemoryRecipe, NgramMemory]:
    """A memory file's description and its memory.

    Raises:
        InvalidValueError: if its rows are not those of another memory, one by one.
    """
    recipe = read_recipe(path)
    if like is not None:
        if "hot_rows" in (recipe.trained_on or {}):
            raise InvalidValueError(
                f"visits of {path}, which holds hot rows alone",
                expected="a memory with all visits that were counted",
                remedy="Name the run that it was exported from",
            )
        for what in ("kind", "rows", "prefix"):
            found, wanted = _named(recipe)[what], _named(like)[what]
            if found != wanted:
                raise InvalidValueError(
                    f"visits of {path}, a memory whose {what} is {found}",
                    expected=f"{wanted}, as in the run that is exported: only then do the counts speak of the same rows",
                    remedy="Merge visits of runs that started from the same memory",
                )
    # Saving needs rows and recipe, not a tokenizer: the cache of no ids stands in for one.
    cache = HashCache.build(TokenBytes.from_list([]), prefix=recipe.prefix)
    return recipe, load_memory(path, cache, mapped=mapped, verify=True)


def _refuse_place(path: Path) -> None:
    """Refuse to replace the memory that a saved attachment reads, of this run or of another.

    Raises:
        InvalidValueError: if the file would stand there.
    """
    if path.exists() and (path.parent / CONFIG_FILE).exists():
        raise InvalidValueError(
            f"output {str(path)!r}, which an attachment reads",
            expected="the name of a file of its own",
            remedy="Name another one",
        )


def _refuse_one_run_twice(opened: Sequence[tuple[MemoryRecipe, NgramMemory]]) -> None:
    """Refuse runs with equal rows and equal visits: whatever they are called, they are one.

    Raises:
        InvalidValueError: if there are two such.
    """
    for i, (recipe, memory) in enumerate(opened):
        for other, other_memory in opened[:i]:
            both = zip(memory.visits, other_memory.visits, strict=True)
            if recipe.identity == other.identity and all(torch.equal(own.counts, its.counts) for own, its in both):
                raise InvalidValueError(
                    f"the memory {recipe.identity} twice among the runs whose visits are added",
                    expected="each run once, the one that is exported left out of merge_visits",
                    remedy="Leave it out",
                )


def _named(recipe: MemoryRecipe) -> dict[str, object]:
    """What decides which windows a row stands for."""
    return {
        "kind": type(recipe.config).kind,
        "rows": [list(table.moduli) for table in recipe.tables],
        "prefix": recipe.prefix,
    }
