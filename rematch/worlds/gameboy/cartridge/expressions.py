"""Expressions of the assembler: operators of C, `$1F`, `%101`, `'A'`, `@` (address), low() and high()."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

TOKEN = re.compile(r"\s*(?:(\$[0-9a-fA-F]+|%[01]+|\d+)|'(.)'|([A-Za-z_.][\w.]*)|(<<|>>|[-+*/%&|^~()@]))")
PRECEDENCE = (("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))
OPERATORS: dict[str, Callable[[int, int], int]] = {
    "|": int.__or__, "^": int.__xor__, "&": int.__and__, "<<": int.__lshift__, ">>": int.__rshift__,
    "+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__, "%": int.__mod__,
}  # fmt: skip


class AssemblyError(ValueError):
    """An error in the assembly text; the message names the line."""


@dataclass
class SymbolTable:
    """Values of constants and labels; local labels are stored under their scope."""

    values: dict[str, int]
    scope: str = ""
    address: int = 0
    strict: bool = True  # False in the first pass: labels that are not defined yet have the value 0

    def value(self, name: str) -> int:
        full = self.scope + name if name.startswith(".") else name
        if full in self.values:
            return self.values[full]
        if self.strict:
            raise AssemblyError(f"unknown label or constant {name!r}")
        return 0


@dataclass
class Expression:
    """Parses and evaluates one expression by operator precedence."""

    text: str
    symbols: SymbolTable
    tokens: list[str] = field(default_factory=list)

    def value(self) -> int:
        position = 0
        text = self.text.strip()
        while position < len(text):
            match = TOKEN.match(text, position)
            if match is None:
                raise AssemblyError(f"cannot read {text[position:]!r} in the expression {text!r}")
            number, letter, name, sign = match.groups()
            self.tokens.append(f"'{letter}" if letter else number or name or sign)
            position = match.end()
        value = self.binary(0) if len(self.tokens) > 1 else self.unary()  # most expressions are one number
        if self.tokens:
            raise AssemblyError(f"{self.tokens[0]!r} is unexpected in the expression {text!r}")
        return value

    def binary(self, level: int) -> int:
        if level == len(PRECEDENCE):
            return self.unary()
        left = self.binary(level + 1)
        while self.tokens and self.tokens[0] in PRECEDENCE[level]:
            sign = self.tokens.pop(0)
            right = self.binary(level + 1)
            if sign in "/%" and right == 0:
                if self.symbols.strict:
                    raise AssemblyError(f"division by zero in {self.text.strip()!r}")
                right = 1
            left = OPERATORS[sign](left, right)
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
            return self.symbols.address
        if token[0] == "'":
            return ord(token[1])
        if token[0] in "$%" and len(token) > 1:
            return int(token[1:], 16 if token[0] == "$" else 2)
        if token[0].isdigit():
            return int(token)
        if token[0].isalpha() or token[0] in "_.":
            return self.symbols.value(token)
        raise AssemblyError(f"{token!r} in {self.text.strip()!r}: expected a value")


def check_range(value: int, low: int, high: int, what: str) -> int:
    if not low <= value <= high:
        raise AssemblyError(f"{what} {value} is out of range {low} to {high}")
    return value
