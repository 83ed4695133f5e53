"""The tree keeps its promises: what it never does, who imports whom, how long things are and take."""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import rematch
from rematch import api
from rematch.core import config
from rematch.worlds import registry

ROOT = Path(rematch.__file__).parent.parent
WORLDS = registry.names()
PACKAGE = sorted((ROOT / "rematch").rglob("*.py"))
TOOLS = [
    *sorted((ROOT / "tools").glob("*.py")),
    *sorted((ROOT / "benchmarks").rglob("*.py")),
    ROOT / "setup.py",
]
CORES = [path for kind in ("*.pyx", "*.h", "*.pyi") for path in sorted((ROOT / "rematch").rglob(kind))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
DOCS = [
    *sorted((ROOT / "docs").glob("*.md")),
    *([ROOT / "README.md"] if (ROOT / "README.md").exists() else []),
]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(path)))


def code_only(path: Path) -> str:
    """A file's Python without its comments and texts."""
    return code_of(path.read_text())


@functools.cache  # every search goes over every file
def code_of(text: str) -> str:
    words: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER):
            words.append(token.string)
        elif token.type == tokenize.STRING and token.string.lower().startswith(("f", "rf", "fr")):
            words.append(token.string)  # before Python 3.12 the expressions of an f-string are in here
    return " ".join(words)


# --- what it never does ----------------------------------------------------------------------------

FORBIDDEN = {
    "pickle": r"\b(c?pickle|cloudpickle|dill|shelve|marshal|joblib)\b",
    "allow_pickle": r"\ballow_pickle\b",
    "torch.load": r"\btorch \. load\b",
    "eval or exec": r"(?<!\. )\b(eval|exec|__import__) \(",
    "unsafe YAML": r"\byaml \. (load|load_all|unsafe_\w+|full_\w+|Loader|FullLoader|UnsafeLoader|CLoader)\b",
    "a shell": r"\bshell = True\b|\bos \. (system|popen)\b",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_can_run_what_a_file_says(what: str) -> None:
    found = [name_of(p) for p in [*PACKAGE, *TOOLS] if re.search(FORBIDDEN[what], code_only(p))]
    assert found == [], f"{what} in {found}"
    for core in CORES:
        if core.suffix == ".pyx":
            assert not re.search(r"\b(pickle|exec|eval)\b", core.read_text()), name_of(core)


def test_the_search_finds_what_it_searches(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    for text in (
        "import pickle",
        "np.load(x, allow_pickle=True)",
        "torch.load(x)",
        "y = eval(x)",
        "yaml.load(x)",
        "yaml.unsafe_load(x)",
        "subprocess.run(x, shell=True)",
        "from marshal import loads",
    ):
        bad.write_text(text + "\n")
        assert any(re.search(pattern, code_only(bad)) for pattern in FORBIDDEN.values()), text
    bad.write_text('"""No pickle, no eval(x)."""\nmodel.eval()  # not yaml.load(x)\nyaml.safe_load(x)\n')
    assert not any(re.search(pattern, code_only(bad)) for pattern in FORBIDDEN.values())


def test_no_paths_of_one_machine() -> None:
    place = re.compile(r"(?<![\w.])/(home|root|Users|work|mnt|tmp)/\w")
    here = Path(__file__)
    for path in [*PACKAGE, *TOOLS, *CORES, *TESTS, *DOCS, ROOT / "Makefile", ROOT / "pyproject.toml"]:
        if path != here:
            found = [line.strip() for line in path.read_text().splitlines() if place.search(line)]
            assert found == [], f"{name_of(path)}: {found[0]}"


# --- who imports whom --------------------------------------------------------------------------------


def imports(path: Path) -> set[str]:
    """Our modules that a file imports, anywhere in it, as dotted names."""
    out: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            own = path.relative_to(ROOT).parts[:-1]
            within = own[:2] == ("rematch", "worlds") and len(own) == 3  # so that a copy uses its own files
            assert node.level <= within, f"{name_of(path)}: imports are written out in full"
            module = ".".join([*(own if node.level else ()), *([node.module] if node.module else [])])
            assert node.level or not within or not module.startswith(".".join(own)), (
                f"{name_of(path)}: a world's folder imports its own files as `from . import`"
            )
            for alias in node.names:
                full = f"{module}.{alias.name}"
                file = ROOT / full.replace(".", "/")
                is_module = (
                    file.is_dir() or file.with_suffix(".py").exists() or file.with_suffix(".pyx").exists()
                )
                out.add(full if is_module else module)
    return {name for name in out if name.split(".")[0] == "rematch"}


def part_of(path: Path) -> str:
    """The part of the house that a file belongs to: spec, config, engine, worlds, show, ..."""
    inside = path.relative_to(ROOT / "rematch")
    return inside.parts[0].removesuffix(".py")


# What each part may import. Whoever is not named here joins the others and may import any of them.
ALLOWED = {
    "spec": set(),
    "plain_yaml": set(),
    "config": {"plain_yaml"},
    "keys": set(),
    "memory": set(),
    "stale": set(),
    "missing": {"config"},
    "worlds": {"spec", "config", "keys", "memory", "missing", "stale", "worlds"},
    "adapters": {"spec", "config", "keys", "missing", "worlds", "adapters"},
    "engine": {"spec", "config", "keys", "memory", "missing", "stale", "worlds", "engine"},
    "show": {"spec", "config", "keys", "show", "__init__"},
    "options": {"config", "options"},
}
# What is allowed beyond that, and why. A line may go; none may come.
BEYOND = {
    # What an evaluation says is one text, in train.log as on the terminal: the loop writes the former.
    ("rematch/engine/notes.py", "rematch.reporting.text"),
    # `status` reads a run as a resume would (lock, checksums, settings) and judges by the same alarms.
    ("rematch/show/status.py", "rematch.curriculum.archive_files"),
    ("rematch/show/status.py", "rematch.storage.run_folder"),
    ("rematch/show/status.py", "rematch.training.trainer"),
    ("rematch/show/status.py", "rematch.evaluation.verdict"),
    ("rematch/show/status.py", "rematch.api"),
    ("rematch/show/status.py", "rematch.worlds"),
}


def test_imports_point_one_way() -> None:
    found: set[tuple[str, str]] = set()
    for path in PACKAGE:
        allowed = ALLOWED.get(part_of(path))
        for name in imports(path):
            target = name.split(".")[1] if "." in name else "__init__"
            if allowed is not None and target not in allowed:
                found.add((name_of(path), name))
    assert found <= BEYOND, f"{sorted(found - BEYOND)}"


def test_the_engine_never_imports_a_world_and_worlds_never_each_other() -> None:
    for path in PACKAGE:
        for name in imports(path):
            parts = name.split(".")
            if parts[:2] != ["rematch", "worlds"] or len(parts) < 3 or parts[2] not in WORLDS:
                continue
            inside = path.relative_to(ROOT / "rematch").parts
            assert inside[0] == "worlds" and inside[1] == parts[2], f"{name_of(path)} imports {name}"


def test_the_engine_never_names_a_world() -> None:
    """But for the default of `game`, which is what a user gets who names none."""
    named = []
    for path in (p for p in PACKAGE if part_of(p) in ("engine", "show", "adapters")):
        for node in nodes(path):
            if isinstance(node, ast.Constant) and node.value in WORLDS:
                named.append(name_of(path))
    assert named == ["rematch/engine/settings.py"]


# --- how fast it starts --------------------------------------------------------------------------------


def best_of_three(code: list[str]) -> tuple[float, str]:
    """Seconds that a fresh Python says something took, at best, and the rest of what it printed."""
    said = []
    for _ in range(3):
        run = subprocess.run([sys.executable, *code], cwd=ROOT, capture_output=True, text=True, check=True)
        first, _, rest = run.stdout.partition("\n")
        said.append((float(first), rest))
    return min(said)


def test_importing_costs_next_to_nothing() -> None:
    watch = "import sys, time; t = time.perf_counter(); import rematch; print(time.perf_counter() - t);"
    watch += "print(*sys.modules)"
    seconds, modules = best_of_three(["-c", watch])
    assert seconds < 0.3
    assert not {"torch", "numpy", "yaml", "matplotlib", "rich"} & set(modules.split())


def test_help_comes_at_once() -> None:
    watch = (
        "import io, sys, time, contextlib, subprocess; t = time.perf_counter();"
        "r = subprocess.run([sys.executable, '-m', 'rematch.cli', '--help'], capture_output=True, text=True);"
        "print(time.perf_counter() - t); print(r.returncode, r.stderr, r.stdout)"
    )
    seconds, said = best_of_three(["-c", watch])
    assert seconds < 1.0 and said.startswith("0 ") and "rematch train RECIPE" in said
    listed = "import sys, rematch.cli; print(0); print(*sys.modules)"
    assert not {"torch", "matplotlib"} & set(best_of_three(["-c", listed])[1].split())


# --- how it reads ----------------------------------------------------------------------------------------

LONGEST = 450  # lines; about 300 is the aim


def test_files_are_read_in_one_sitting() -> None:
    for path in [*PACKAGE, *TOOLS, *CORES, *TESTS]:
        lines = len(path.read_text().splitlines())
        assert lines <= LONGEST, f"{name_of(path)} has {lines} lines"


def test_nothing_large_lies_in_the_tree() -> None:
    """What is committed is small: a package that pip left behind was committed once."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    assert "README.md" in names
    large = {name: size for name in names if (size := (ROOT / name).stat().st_size) > 5_000_000}
    assert not large and not [name for name in names if name.endswith((".whl", ".tar.gz", ".zip", ".gb"))]


# Words that come from outside: a name in another library's interface; what apt and dnf are called.
FOREIGN = {
    "rematch/benchmarks/peer.py": {"wrapper"},
    "tools/setup/doctor.py": {"manager"},
    "tests/tools/test_doctor.py": {"manager"},
}
WITHOUT = {
    "manager",
    "handler",
    "helper",
    "helpers",
    "util",
    "utils",
    "wrapper",
    "callback",
    "callbacks",
    "trainer",
}


def words_in(name: str) -> set[str]:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
    return set(spaced.split("_"))


def test_names_do_without_empty_words() -> None:
    for path in [*PACKAGE, *TOOLS, *TESTS]:
        names = {path.stem, *path.relative_to(ROOT).parts[:-1]}
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
        ours = path in PACKAGE
        for name in names:
            assert not words_in(name) & WITHOUT - FOREIGN.get(name_of(path), set()), (
                f"{name_of(path)}: {name}"
            )
            if ours:
                assert name != "env_kwargs" and not name.startswith("base_"), f"{name_of(path)}: {name}"


def test_every_module_says_what_it_is() -> None:
    for path in [*PACKAGE, *TOOLS, *TESTS]:
        text = path.read_text()
        if text.strip():
            said = ast.get_docstring(parsed(path))
            assert said and len(said) > 15, f"{name_of(path)} has no docstring"
    for core in CORES:
        if core.suffix != ".pyi":
            assert core.read_text().lstrip().startswith(("/*", '"""', "#")), (
                f"{name_of(core)} does not say what it is"
            )


def test_functions_take_at_most_six_parameters() -> None:
    for path in (p for p in PACKAGE if part_of(p) in ("engine", "worlds", "show", "keys", "spec")):
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                given = [
                    a.arg for a in [*node.args.posonlyargs, *node.args.args] if a.arg not in ("self", "cls")
                ]
                assert len(given) <= 6, f"{name_of(path)}: {node.name}({', '.join(given)})"
                if part_of(path) in ("engine", "worlds"):  # settings travel whole
                    assert node.args.kwarg is None, (
                        f"{name_of(path)}: {node.name} takes **{node.args.kwarg.arg}"
                    )


def test_docs_python_runs(tmp_path: Path) -> None:
    """Examples of a page run one after another, in an empty folder, unless they have a test of their own."""
    elsewhere = {"worlds.md": "test_own_worlds.py", "python.md": "test_api.py"}
    elsewhere["gameboy.md"] = "test_gameboy_world.py"
    for name, test in elsewhere.items():
        assert name in (ROOT / "tests" / test).read_text()
    for page in DOCS:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
        if not blocks or page.name in elsewhere:
            continue
        script = tmp_path / f"{page.stem}.py"
        script.write_text("\n".join(blocks))
        run = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            timeout=120,
        )
        assert run.returncode == 0, f"{name_of(page)}: {run.stderr[-500:]}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in DOCS:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in link and not link.startswith("mailto:"):
                assert (page.parent / link).exists(), f"{name_of(page)}: {link}"


# --- recipes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(api.recipes()))
def test_recipes_load_and_set_nothing_idle(name: str) -> None:
    text = api.recipes()[name]
    if "game: openspiel" in text:
        pytest.importorskip("pyspiel")
    made = api.configure(name)
    layer = config.read_yaml(text, name)
    config.refuse_idle(made, [key.replace("-", "_") for key in layer if key != "like"], name)
    assert text.startswith(f"# {name}"), "the header says what the recipe is for and what it should reach"
    assert config.apply(api.default(made.game), config.read_yaml(config.to_yaml(made), name), name) == made
