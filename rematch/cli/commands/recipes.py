"""rematch recipes: the recipes that come with Rematch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from rematch.cli.options import Options


def list_recipes(words: Sequence[str]) -> int:
    from rematch.api import recipes

    Options(words).only(0, "rematch recipes")
    for name, text in recipes().items():
        head = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
        about = " ".join(line.lstrip("# ") for line in head).removeprefix(f"{name}: ")
        print(f"{name}: {re.split(r'(?<=[.]) ', about)[0]}")  # its first sentence
    return 0
