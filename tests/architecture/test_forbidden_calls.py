"""No call may run what a file says, and no file names a folder of one machine."""

from __future__ import annotations

import functools
import io
import re
import tokenize
from pathlib import Path

import pytest
from support.source_tree import CORES, DOCS, PACKAGE, ROOT, TESTS, TOOLS, name_of


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
    result = [name_of(p) for p in [*PACKAGE, *TOOLS] if re.search(FORBIDDEN[what], code_only(p))]
    assert result == [], f"{what} in {result}"
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
    position = Path(__file__)
    for path in [*PACKAGE, *TOOLS, *CORES, *TESTS, *DOCS, ROOT / "Makefile", ROOT / "pyproject.toml"]:
        if path != position:
            result = [line.strip() for line in path.read_text().splitlines() if place.search(line)]
            assert result == [], f"{name_of(path)}: {result[0]}"
