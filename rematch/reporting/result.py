"""Results of commands: values for programs, lines for a terminal, tables for a notebook."""

from __future__ import annotations

import copy
import html
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rematch.evaluation.text import clean, human, match_cells
from rematch.reporting.text import aligned, return_cells


class Table(NamedTuple):
    """Rows of cells, the header row first; the columns in `right` are right-aligned."""

    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()


class Lines(NamedTuple):
    """Lines whose columns are already aligned."""

    lines: Sequence[str]


NARROWEST = 20  # characters of a column that is wrapped
GAP = "  "  # between two columns
Block = str | Table | Lines  # a text is one paragraph


class Printable:
    """A value that prints as plain lines, and as HTML in a notebook."""

    def blocks(self) -> Iterator[Block]:
        """The paragraphs and tables of this value, in reading order."""
        raise NotImplementedError

    def lines(self, width: int | None = None) -> list[str]:
        """The lines that a command prints; texts and last columns are wrapped to `width` characters."""
        return [line for block in self.blocks() for line in block_lines(block, width)]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return "\n".join(block_html(block) for block in self.blocks())


class Result(Printable, Mapping[str, Any]):
    """A command's result as a read-only mapping of JSON values."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def to_dict(self) -> dict[str, Any]:
        """A copy as plain dicts, lists, numbers and texts, ready for json.dumps."""
        return copy.deepcopy(self._values)


class PrintableRun(Printable):
    """Prints a run: its folder, its roles, its newest scoreboard and verdict."""

    folder: Path
    config: Any
    policies: dict[str, Any]
    history: list[dict[str, Any]]

    def blocks(self) -> Iterator[Block]:
        roles = ", ".join(self.policies)
        yield f"{self.folder}: {self.config.game}, seed {self.config.seed}, policies for {roles}"
        if not self.history:
            yield "no evaluation yet"
            return
        row = self.history[-1]
        yield f"newest evaluation, after {human(row.get('step'))} steps:"
        rows = match_cells(row)
        if len(rows) > 1:
            yield Table([cells[:6] for cells in rows], right=(2, 3))
        if row.get("returns"):
            yield Table([cells[:4] for cells in return_cells(row)], right=(1, 2))
        if row.get("verdict"):
            yield f"verdict: {clean(row['verdict'])}"

    def to_dict(self) -> dict[str, Any]:
        """The folder, the world and the evaluations as JSON values."""
        return {"run": str(self.folder), "game": self.config.game, "seed": self.config.seed,
                "roles": list(self.policies), "history": list(self.history)}


def block_lines(block: Block, width: int | None = None) -> list[str]:
    if isinstance(block, Table):
        return table_lines(block, width)
    if isinstance(block, Lines):
        return list(block.lines)
    return wrapped(block, width)


def wrapped(text: str, width: int | None = None, indent: str = "") -> list[str]:
    """The text as lines of at most `width` characters, the later ones indented; None: one line."""
    if width is None:
        return [text]
    lines = textwrap.wrap(text, max(width, NARROWEST), subsequent_indent=indent, break_on_hyphens=False)
    return lines or [""]


def table_lines(table: Table, width: int | None = None) -> list[str]:
    """The table with straight columns; its last column is wrapped so that lines have `width` characters."""
    lines = aligned(table.rows, table.right)
    indent = max(len(line) for line in aligned([row[:-1] for row in table.rows])) + len(GAP)
    if width is None or max(map(len, lines)) <= width or width - indent < NARROWEST:
        return lines
    out = []
    for line in lines:
        first, *more = textwrap.wrap(line[indent:], width - indent, break_on_hyphens=False) or [""]
        out += [(line[:indent] + first).rstrip(), *(" " * indent + part for part in more)]
    return out


def block_html(block: Block) -> str:
    """The block as HTML. Texts are escaped: a name in a run folder must not become markup."""
    if isinstance(block, Table):
        return table_html(block)
    if isinstance(block, Lines):
        return "<pre>" + "\n".join(escape(line) for line in block.lines) + "</pre>"
    return f"<p>{escape(block)}</p>" if block else ""


def table_html(table: Table) -> str:
    heading, *rows = [[escape(cell) for cell in row] for row in table.rows]
    parts = ["<table><thead><tr>", *(f"<th>{cell}</th>" for cell in heading), "</tr></thead><tbody>"]
    for row in rows:
        styled = [f'<td style="text-align: {_side(index, table)}">{cell}</td>'
                  for index, cell in enumerate(row)]
        parts += ["<tr>", *styled, "</tr>"]
    return "".join([*parts, "</tbody></table>"])


def escape(text: str) -> str:
    return html.escape(clean(text))


def _side(index: int, table: Table) -> str:
    return "right" if index in table.right else "left"
