"""Expressions of the assembler: C's operators, `$1F`, `%101`, `'A'`, `@` for here, low() and high()."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

TOKEN = re.compile(r"\s*(?:(\$[0-9a-fA-F]+|%[01]+|\d+)|'(.)'|([A-Za-z_.][\w.]*)|(<<|>>|[-+*/%&|^~()@]))")
LEVELS = (("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))
DO: dict[str, Callable[[int, int], int]] = {
    "|": int.__or__, "^": int.__xor__, "&": int.__and__, "<<": int.__lshift__, ">>": int.__rshift__,
    "+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__, "%": int.__mod__,
}  # fmt: skip


class AssemblyError(ValueError):
    """What is wrong with a line of assembly, and its number."""


@dataclass
class Names:
    """Constants and labels, with local labels under their scope."""

    known: dict[str, int]
    scope: str = ""
    here: int = 0
    strict: bool = True  # the first pass may meet labels that come later: they count as 0

    def value(self, name: str) -> int:
        full = self.scope + name if name.startswith(".") else name
        if full in self.known:
            return self.known[full]
        if self.strict:
            raise AssemblyError(f"unknown label or constant {name!r}")
        return 0


@dataclass
class Expression:
    """A parser by precedence over one expression's tokens."""

    text: str
    names: Names
    tokens: list[str] = field(default_factory=list)

    def value(self) -> int:
        place = 0
        text = self.text.strip()
        while place < len(text):
            match = TOKEN.match(text, place)
            if match is None:
                raise AssemblyError(f"cannot read {text[place:]!r} in the expression {text!r}")
            number, letter, name, sign = match.groups()
            self.tokens.append(f"'{letter}" if letter else number or name or sign)
            place = match.end()
        out = self.binary(0) if len(self.tokens) > 1 else self.unary()  # most are one number
        if self.tokens:
            raise AssemblyError(f"{self.tokens[0]!r} is too much in the expression {text!r}")
        return out

    def binary(self, level: int) -> int:
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.tokens and self.tokens[0] in LEVELS[level]:
            sign = self.tokens.pop(0)
            right = self.binary(level + 1)
            if sign in "/%" and right == 0:
                if self.names.strict:
                    raise AssemblyError(f"division by zero in {self.text.strip()!r}")
                right = 1
            left = DO[sign](left, right)
        return left

    def unary(self) -> int:
        if not self.tokens:
            raise AssemblyError(f"the expression {self.text.strip()!r} ends too early")
        token = self.tokens.pop(0)
        if token in ("-", "~", "+"):
            value = self.unary()
            return {"-": -value, "~": ~value, "+": value}[token]
        if token == "(" or (token.lower() in ("low", "high") and self.tokens[:1] == ["("]):
            if token != "(":
                self.tokens.pop(0)
            value = self.binary(0)
            if not self.tokens or self.tokens.pop(0) != ")":
                raise AssemblyError(f"a bracket is not closed in {self.text.strip()!r}")
            return {"(": value, "low": value & 0xFF, "high": value >> 8 & 0xFF}[token.lower()]
        if token == "@":
            return self.names.here
        if token[0] == "'":
            return ord(token[1])
        if token[0] in "$%" and len(token) > 1:
            return int(token[1:], 16 if token[0] == "$" else 2)
        if token[0].isdigit():
            return int(token)
        if token[0].isalpha() or token[0] in "_.":
            return self.names.value(token)
        raise AssemblyError(f"{token!r} stands where a value should in {self.text.strip()!r}")


def within(value: int, low: int, high: int, what: str) -> int:
    if not low <= value <= high:
        raise AssemblyError(f"{what} {value} is out of range {low} to {high}")
    return value
