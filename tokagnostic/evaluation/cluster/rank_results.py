"""What the ranks of a job counted, one file each, to the result over all of them.

Counts of disjoint parts of a corpus add up, so that nothing but whole numbers has to leave a rank. A folder belongs to
one job: its files say which rank of how many wrote them, and a merge refuses a folder in which one is missing.
"""

from __future__ import annotations

import json
import re
from functools import reduce
from pathlib import Path
from typing import Any

from tokagnostic.errors import InvalidValueError, SourceError
from tokagnostic.evaluation.corpus_overlap.counting import CorpusOverlap
from tokagnostic.evaluation.corpus_overlap.sorted_runs import key_range
from tokagnostic.evaluation.corpus_overlap.string_counts import StringCounts, count_runs
from tokagnostic.evaluation.corpus_overlap.window_records import RECORD_BYTES
from tokagnostic.evaluation.corpus_overlap.work_folder import WorkFolder, temporary_or
from tokagnostic.evaluation.overlap import Overlap, OverlapSquare
from tokagnostic.evaluation.overlap.counting import PairCounts
from tokagnostic.evaluation.overlap.counts import OverlapCounts, check_order
from tokagnostic.json_files import write_json

FORMAT = "tokagnostic rank counts 1"
COUNTS, PARTS, RUNS = "overlap", "corpus", "runs"
"""What names of files and folders begin with: counts per document, counts of a part of the keys, sorted runs."""
PLACE_BITS = 40
"""A rank's documents take their places in the corpus from rank * 2 ** 40 on, which only the resampling goes by."""


def first_place(rank: int) -> int:
    """The place that a rank's first document takes in the corpus."""
    return rank << PLACE_BITS


def write_rank_counts(folder: str | Path, rank: int, world_size: int, counts: PairCounts) -> Path:
    """Write what a rank counted, in one step; what it wrote in an earlier try is replaced.

    Args:
        folder: of the job; made if needed.
        rank: from 0.
        world_size: ranks of the job.
        counts: by target, then by reference.

    Returns:
        The file.
    """
    pairs = [[pair.to_dict() for pair in row] for row in counts]
    return _write(folder, COUNTS, rank, world_size, {"pairs": pairs})


def merge_square(folder: str | Path) -> OverlapSquare:
    """The overlap of every target with every reference over the documents of all ranks.

    Raises:
        SourceError: if a rank's file is missing or damaged, or is of another job.
        InvalidValueError: if the ranks counted for other tokenizers or under other settings.
        CorpusError: if no rank has a window.
    """
    ranks = [
        [[OverlapCounts.from_dict(pair) for pair in row] for row in values.get("pairs", [[None]])]
        for values in _read_all(folder, COUNTS)
    ]
    return OverlapSquare(tuple(tuple(pair.finish() for pair in row) for row in reduce(_merge_pairs, ranks)))


def merge_overlap(folder: str | Path) -> Overlap:
    """The overlap of one target with one reference over the documents of all ranks.

    Raises:
        InvalidValueError: if the ranks counted several pairs, or under other settings.
        SourceError: as `merge_square`.
        CorpusError: likewise.
    """
    (first, *rest), *others = merge_square(folder).pairs
    if rest or others:
        raise InvalidValueError(
            f"{folder} with {1 + len(others)} targets and {1 + len(rest)} references",
            expected="the counts of one target and one reference",
            remedy="Use merge_square",
        )
    return first


def run_folder(folder: str | Path, rank: int, world_size: int) -> Path:
    """Where a rank leaves its sorted runs."""
    return Path(folder) / f"{RUNS}-{rank:05d}-of-{world_size:05d}"


def count_part(folder: str | Path, part: int, num_parts: int, memory_mib: int = 512) -> Path:
    """Merge the runs of all ranks over one part of the key space, and write what was counted; the runs stay.

    Args:
        folder: of the job.
        part: from 0. Parts do not know of each other, and may be counted anywhere in any order.
        num_parts: as many parts of equal width.
        memory_mib: MiB of records to hold at once.

    Returns:
        The file.

    Raises:
        SourceError: if a rank's runs are missing, unfinished or damaged.
        InvalidValueError: if the ranks counted under other settings.
    """
    works = _finished_runs(Path(folder))
    settings, max_order = works[0].settings, int(works[0].settings["max_order"])
    low, high = key_range(part, num_parts)
    with temporary_or(None, settings) as scratch:
        scratch.runs = [run.between(low, high) for work in works for run in work.runs]
        counts = count_runs(scratch, max_order, memory_mib * (1 << 20) // RECORD_BYTES)
    facts = {
        "settings": settings,
        "num_documents": sum(work.num_documents for work in works),
        "num_bytes": sum(work.num_bytes for work in works),
        "counts": counts.to_dict(),
    }
    return _write(folder, PARTS, part, num_parts, facts)


def merge_corpus_overlap(folder: str | Path) -> CorpusOverlap:
    """The overlap over the corpus of all ranks as one document, once every part of the keys was counted.

    Raises:
        SourceError: if a part is missing or damaged, or is of another job.
        CorpusError: if no rank has a window.
    """
    first, *others = _read_all(folder, PARTS)
    if any({**other, "counts": None, "rank": 0} != {**first, "counts": None} for other in others):
        raise SourceError(
            f"{folder} with parts of several counts",
            expected="the parts of one count",
            remedy="Count the parts again",
        )
    try:
        max_order = check_order(first["settings"]["max_order"])
        target, reference = map(str, first["settings"]["names"])
        num_documents, num_bytes = int(first["num_documents"]), int(first["num_bytes"])
        parts = [StringCounts.from_dict(values["counts"], max_order) for values in (first, *others)]
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(
            f"{folder} with parts that cannot be read ({error})",
            expected="what count_part wrote",
            remedy="Count the parts again",
        ) from error
    return CorpusOverlap.of(reduce(StringCounts.merge, parts), (target, reference), num_documents, num_bytes)


def _finished_runs(folder: Path) -> list[WorkFolder]:
    """The work folders of all ranks, in their order."""
    works = [WorkFolder.load(path) for path in _of_all_ranks(folder, RUNS)]
    for work in works:
        if not work.complete:
            raise SourceError(
                f"{work.path} is not finished", expected="the runs of a whole rank", remedy="Run this rank again"
            )
        if work.settings != works[0].settings:
            raise InvalidValueError(
                f"{work.path} counted under other settings than {works[0].path}",
                expected="the runs of one job",
                remedy="Give each job a folder of its own",
            )
    return works


def _write(folder: str | Path, kind: str, rank: int, world_size: int, values: dict[str, Any]) -> Path:
    path = Path(folder) / f"{kind}-{rank:05d}-of-{world_size:05d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"format": FORMAT, "rank": rank, "world_size": world_size, **values})
    return path


def _read_all(folder: str | Path, kind: str) -> list[dict[str, Any]]:
    """The files of one kind in the order of their ranks."""
    return [_read(path) for path in _of_all_ranks(Path(folder), kind)]


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']!r}")
        return dict(values)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise SourceError(
            f"{path} cannot be read ({error})", expected="the counts of a rank", remedy="Run this rank again"
        ) from error


def _of_all_ranks(folder: Path, kind: str) -> list[Path]:
    """The files or folders of one kind in the order of their ranks; refused unless there is one of each rank."""
    name = re.compile(rf"{kind}-(\d{{5,}})-of-(\d{{5,}})(?:\.json)?", re.ASCII)
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    ranks = {entry: found.groups() for entry in entries if (found := name.fullmatch(entry.name))}
    sizes = {int(size) for _, size in ranks.values()}
    if len(sizes) != 1:
        raise SourceError(
            f"{folder} with the {kind} of {len(sizes)} jobs",
            expected="those of one job",
            remedy="Run the job, or remove what other ones left",
        )
    (size,) = sizes
    missing = sorted(set(range(size)) - {int(rank) for rank, _ in ranks.values()})
    if missing:
        named = ", ".join(f"{rank:05d}" for rank in missing[:10])
        raise SourceError(
            f"{folder} without the {kind} of rank {named}{' ...' if len(missing) > 10 else ''}",
            expected=f"those of all {size} ranks",
            remedy="Run these ranks again",
        )
    return list(ranks)


def _merge_pairs(first: PairCounts, second: PairCounts) -> PairCounts:
    return [
        [pair.merge(other) for pair, other in zip(row, others, strict=True)]
        for row, others in zip(first, second, strict=True)
    ]
