"""What the design says of the code's shape, read from its syntax trees."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import tokagnostic

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tokagnostic"
FILES = sorted(PACKAGE.rglob("*.py"))
LONG = 300

DOORS = {
    "numba": ("hashing/*.py", "*/*_numba.py", "evaluation/overlap/*.py", "evaluation/corpus_overlap/*.py"),
    "llvmlite": ("hashing/*.py",),
    "triton": ("*/*_triton.py",),
    "safetensors": ("memory/*.py", "host/saving.py", "hashing/cache.py", "training/checkpoint.py"),
    "accelerate": ("training/*.py",),
    "matplotlib": ("plots/*.py",),
    "tyro": ("flags.py", "options.py"),
    "datasets": ("corpus/*.py",),
    "datatrove": ("evaluation/cluster/*.py",),
    "pyarrow": ("corpus/*.py",),
    "tokenizers": ("tokens/*.py", "bench/tokens.py"),
    "transformers": ("training/hosts.py", "training/trainer_callback.py"),
    "huggingface_hub": ("tokens/sources.py", "host/hub.py"),
    "sentencepiece": ("tokens/sentencepiece/*.py",),
    "tiktoken": ("tokens/tiktoken/*.py",),
    "mistral_common": ("tokens/mistral.py",),
    "gguf": (),
    "jinja2": ("pages/*.py",),
    "lm_eval": ("evaluation/harness.py",),
    "pickle": (),
}
"""The only files that may import each library, anywhere in them."""

FLOORS = (
    ("errors", "json_files", "progress"),
    ("corpus", "tokens"),
    ("hashing",),
    ("memory",),
    ("host",),
    ("evaluation",),
    ("training",),
    ("pages", "plots"),
    ("studies",),
    ("bench",),
    ("flags", "options", "outputs"),
    ("verbs",),
    ("cli",),
    ("__main__",),
)
"""From the lowest to the highest; what stands on one floor may know each other."""
FLOOR_OF = {name: floor for floor, names in enumerate(FLOORS) for name in names}
WITHOUT_TORCH = ("errors", "corpus", "tokens", "hashing")

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())


def place_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports, at its top, in a function or for type checkers."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place_of(path)} has a relative import"
            yield node.module or ""


def module_of(path: Path) -> str:
    return ".".join(("tokagnostic", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


@every_file
def test_a_heavy_library_comes_in_through_its_door(path) -> None:
    for module in imports_of(path):
        library = module.split(".")[0]
        if library in DOORS:
            assert any(fnmatch(place_of(path), door) for door in DOORS[library]), f"{library} in {place_of(path)}"


@every_file
def test_imports_point_down(path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for module in imports_of(path):
        parts = module.split(".")
        if parts[0] == "tokagnostic" and len(parts) > 1 and own != "__init__":
            assert FLOOR_OF[parts[1]] <= FLOOR_OF[own], f"{place_of(path)} imports {module}"


def test_every_room_is_on_a_floor() -> None:
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES} - {"__init__"}
    assert rooms == set(FLOOR_OF)


@every_file
def test_a_module_opens_with_a_sentence(path) -> None:
    docstring = ast.get_docstring(tree_of(path))
    assert docstring, place_of(path)
    first = docstring.split("\n\n")[0]
    assert first.endswith("."), place_of(path)


@every_file
def test_only_the_command_line_prints(path) -> None:
    calls = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    names = {node.func.id for node in calls}
    assert place_of(path) == "cli.py" or "print" not in names
    assert not names & {"eval", "exec", "breakpoint"}


@every_file
def test_a_memory_is_told_by_its_parts_and_not_by_the_name_of_its_kind(path) -> None:
    from tokagnostic.memory import memory_kinds

    if place_of(path) in ("memory/kinds.py", "memory/base.py"):
        return
    in_tokens = place_of(path).startswith("tokens/")  # where a kind is that of a token
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = {side.attr for side in sides if isinstance(side, ast.Attribute)}
            assert in_tokens or "kind" not in names or isinstance(node.ops[0], ast.Is), (
                f"{place_of(path)}:{node.lineno}"
            )
            constants = {side.value for side in sides if isinstance(side, ast.Constant)}
            assert not constants & set(memory_kinds()), f"{place_of(path)}:{node.lineno}"
        elif isinstance(node, ast.Match) and not in_tokens:
            assert not (isinstance(node.subject, ast.Attribute) and node.subject.attr == "kind")


@every_file
def test_no_error_is_swallowed_whole_and_no_setting_is_read_from_the_environment(path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ExceptHandler):
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            names = {name.id for name in caught if isinstance(name, ast.Name)}
            raised_again = any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
            whole = node.type is None or names & {"Exception", "BaseException"}
            assert raised_again or not whole, f"{place_of(path)}:{node.lineno}"
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("environ", "getenv"), f"{place_of(path)}:{node.lineno}"
        assert not isinstance(node, ast.Assert), f"{place_of(path)}:{node.lineno} asserts"


@every_file
def test_nothing_is_unpickled_and_no_code_of_others_is_run(path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "torch":
                given = {keyword.arg: keyword.value for keyword in node.keywords}
                only = given.get("weights_only")
                assert isinstance(only, ast.Constant) and only.value is True, f"{place_of(path)}:{node.lineno}"
        if isinstance(node, ast.keyword) and node.arg in ("trust_remote_code", "allow_pickle"):
            assert isinstance(node.value, ast.Constant) and node.value.value is False


def test_floors_0_to_2_work_where_there_is_no_torch() -> None:
    modules = [
        module_of(path)
        for path in FILES
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") in WITHOUT_TORCH
        and not path.name.endswith(("_torch.py", "_triton.py"))
    ]
    assert len(modules) > 20
    code = (
        "import importlib, sys\n"
        "for name in ('torch', 'transformers', 'datasets', 'accelerate'):\n"
        "    sys.modules[name] = None\n"  # an import of it now fails
        f"for module in {modules!r}:\n"
        "    importlib.import_module(module)\n"
        "import numpy as np\n"
        "from tokagnostic.hashing import HashCache, NgramHasher\n"
        "from tokagnostic.tokens import TokenBytes\n"
        "cache = HashCache.build(TokenBytes.from_list([b'in', b'ter']))\n"
        "assert NgramHasher(cache, 2)(np.array([0, 1])).shape == (2, 2)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_every_public_name_is_there() -> None:
    assert tokagnostic.__all__ == sorted(set(tokagnostic.__all__))
    for name in tokagnostic.__all__:
        value = getattr(tokagnostic, name)
        assert value.__name__ == name and value.__doc__
    assert set(tokagnostic.__all__) <= set(dir(tokagnostic))
    with pytest.raises(AttributeError, match="Nonsense"):
        tokagnostic.Nonsense  # noqa: B018


def test_the_names_of_the_design_are_public() -> None:
    names = (
        "TokenBytes HashCache NgramHasher MemoryConfig memory_kinds save_memory load_memory attach load_attachment "
        "pretrain PretrainConfig bits_per_byte ngram_overlap coverage"
    )
    assert set(names.split()) <= set(tokagnostic.__all__)


def test_the_types_are_shipped() -> None:
    assert (PACKAGE / "py.typed").read_bytes() == b""


def test_the_doors_here_are_those_of_the_import_linter() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    held = {module for contract in settings["contracts"] for module in contract.get("forbidden_modules", ())}
    assert held == set(DOORS)


def test_long_files_are_told(record_property) -> None:
    """A file past some 300 lines is two ideas; this reports such files and refuses none."""
    lengths = {place_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    long = {place: length for place, length in lengths.items() if length > LONG}
    record_property("long_files", long)
    if long:
        import warnings

        warnings.warn(f"files of more than {LONG} lines: {long}", stacklevel=1)
