"""A two-pass assembler for the SM83, the processor of the Game Boy.

    assemble("start: ld a, [hl+]\\n jr start") -> Program(image, symbols)

The first pass gives every line its length and every label its address, the second writes the bytes. The
syntax is the manual's: `ld a, [hl+]`, `jr nz, .loop`, `ldh [rP1], a`. Labels end in a colon; a label with
a leading dot belongs to the last one without. `NAME equ expression` names a number. `org`, `db`, `dw`,
`ds count[, fill]` and `rept count` … `endr` place data. Includes are the caller's: it joins texts. There
is no `eval`: expressions have a parser of their own (C's operators and precedence, `$1F`, `%101`, `'A'`,
`@` for here, `low()` and `high()`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rematch.worlds.gameboy.cartridge.expressions import AssemblyError, Expression, Names, within

R8 = ("b", "c", "d", "e", "h", "l", "[hl]", "a")
R16 = ("bc", "de", "hl", "sp")
PUSHED = ("bc", "de", "hl", "af")
CONDITIONS = ("nz", "z", "nc", "c")
ARITHMETIC = ("add", "adc", "sub", "sbc", "and", "xor", "or", "cp")
SHIFTS = ("rlc", "rrc", "rl", "rr", "sla", "sra", "swap", "srl")
PLAIN = {
    "nop": 0x00, "rlca": 0x07, "rrca": 0x0F, "rla": 0x17, "rra": 0x1F, "daa": 0x27, "cpl": 0x2F, "scf": 0x37,
    "ccf": 0x3F, "ret": 0xC9, "reti": 0xD9, "di": 0xF3, "ei": 0xFB,
}  # fmt: skip
# After these two the processor may skip a byte (`halt` with interrupts off, `stop` always): a zero follows.
PADDED = {"halt": (0x76, 0x00), "stop": (0x10, 0x00)}
INDIRECT = {"[bc]": 0x02, "[de]": 0x12, "[hl+]": 0x22, "[hli]": 0x22, "[hl-]": 0x32, "[hld]": 0x32}

LABEL = re.compile(r"\s*(\.?[A-Za-z_]\w*):\s*(.*)$")
CONSTANT = re.compile(r"\s*([A-Za-z_]\w*)\s+equ\s+(.*)$", re.I)


@dataclass(frozen=True)
class Program:
    image: bytes
    symbols: dict[str, int]


@dataclass
class Line:
    """One line of the source: where it stands, under which label, what it says."""

    number: int
    text: str
    scope: str = ""
    address: int = 0


def split(text: str) -> list[str]:
    """Operands between commas that stand outside quotes."""
    parts = re.findall(r"""(?:"[^"]*"|'.'|[^,"])+""", text)
    return [part.strip() for part in parts]


@dataclass
class Encoder:
    """Turns one instruction into its bytes; values come from `names`."""

    names: Names

    def number(self, text: str) -> int:
        return int(text) if text.isdecimal() else Expression(text, self.names).value()

    def byte(self, text: str) -> int:
        return within(self.number(text), -128, 255, f"the byte {text!r} =") & 0xFF

    def word(self, text: str) -> tuple[int, int]:
        value = within(self.number(text), -32768, 65535, f"the word {text!r} =") & 0xFFFF
        return value & 0xFF, value >> 8

    def signed(self, text: str) -> int:
        return within(self.number(text), -128, 127, f"the offset {text!r} =") & 0xFF

    def relative(self, text: str) -> int:
        if not self.names.strict:
            return 0
        away = self.number(text) - (self.names.here + 2)
        return within(away, -128, 127, f"the jump to {text!r}, a distance of") & 0xFF

    def high(self, text: str) -> int:
        value = self.number(text[1:-1])
        if not self.names.strict:
            return 0
        return within(value, 0xFF00, 0xFFFF, f"the high address {text!r} =") & 0xFF

    def encode(self, word: str, ops: list[str]) -> tuple[int, ...]:
        """The bytes of one instruction; an empty tuple where no instruction has this form."""
        count = len(ops)
        if not count and word in PLAIN:
            return (PLAIN[word],)
        if not count and word in PADDED:
            return PADDED[word]
        if word in ("ld", "ldh") and count == 2:
            return self.load(word, *ops)
        if word in ARITHMETIC:
            if count == 2 and word == "add" and ops[0] in ("hl", "sp"):
                if ops[0] == "sp":
                    return (0xE8, self.signed(ops[1]))
                return (0x09 + 16 * R16.index(ops[1]),) if ops[1] in R16 else ()
            if count == 2 and ops[0] == "a":  # `add a, b` and `add b` are the same
                ops = ops[1:]
            return self.arithmetic(8 * ARITHMETIC.index(word), ops) if len(ops) == 1 else ()
        if word in ("inc", "dec") and count == 1:
            down = word == "dec"
            if ops[0] in R8:
                return (0x04 + down + 8 * R8.index(ops[0]),)
            return (0x03 + 8 * down + 16 * R16.index(ops[0]),) if ops[0] in R16 else ()
        if word in ("push", "pop") and count == 1 and ops[0] in PUSHED:
            return (0xC1 + 4 * (word == "push") + 16 * PUSHED.index(ops[0]),)
        if word in ("jp", "jr", "call", "ret"):
            return self.branch(word, ops)
        if word == "rst" and count == 1:
            target = self.number(ops[0])
            if target not in range(0, 0x40, 8):
                raise AssemblyError(f"rst {ops[0]}: expected one of $00, $08 … $38")
            return (0xC7 + target,)
        if word in SHIFTS and count == 1 and ops[0] in R8:
            return (0xCB, 8 * SHIFTS.index(word) + R8.index(ops[0]))
        if word in ("bit", "res", "set") and count == 2 and ops[1] in R8:
            bit = within(self.number(ops[0]), 0, 7, "the bit")
            return (0xCB, 0x40 * (1 + ("bit", "res", "set").index(word)) + 8 * bit + R8.index(ops[1]))
        return ()

    def arithmetic(self, row: int, ops: list[str]) -> tuple[int, ...]:
        if ops[0] in R8:
            return (0x80 + row + R8.index(ops[0]),)
        return () if is_register(ops[0]) else (0xC6 + row, self.byte(ops[0]))

    def branch(self, word: str, ops: list[str]) -> tuple[int, ...]:
        if word == "jp" and ops in (["hl"], ["[hl]"]):
            return (0xE9,)
        conditional = bool(ops) and ops[0] in CONDITIONS and len(ops) == 1 + (word != "ret")
        step = 8 * CONDITIONS.index(ops[0]) if conditional else 0
        if word == "ret":
            return (0xC0 + step,) if conditional else ()
        if (not conditional and len(ops) != 1) or is_register(ops[-1]):
            return ()
        if word == "jr":
            return (0x20 + step if conditional else 0x18, self.relative(ops[-1]))
        alone, with_condition = {"jp": (0xC3, 0xC2), "call": (0xCD, 0xC4)}[word]
        return (with_condition + step if conditional else alone, *self.word(ops[-1]))

    def load(self, word: str, to: str, source: str) -> tuple[int, ...]:
        if word == "ldh" or "[c]" in (to, source):
            if (to, source) in (("[c]", "a"), ("a", "[c]")):
                return (0xE2 if source == "a" else 0xF2,)
            if source == "a" and is_memory(to):
                return (0xE0, self.high(to))
            return (0xF0, self.high(source)) if to == "a" and is_memory(source) else ()
        if to in R8 and source in R8:
            return () if to == source == "[hl]" else (0x40 + 8 * R8.index(to) + R8.index(source),)
        if to in INDIRECT and source == "a":
            return (INDIRECT[to],)
        if to == "a" and source in INDIRECT:
            return (INDIRECT[source] + 8,)
        if (to, source) == ("sp", "hl"):
            return (0xF9,)
        if to == "hl" and re.match(r"sp\s*[+-]", source, re.I):
            return (0xF8, self.signed("0" + source[2:]))
        if to == "a" and is_memory(source):
            return (0xFA, *self.word(source[1:-1]))
        if is_memory(to) and source in ("a", "sp"):
            return (0xEA if source == "a" else 0x08, *self.word(to[1:-1]))
        if is_register(source) or is_memory(source):
            return ()
        if to in R8:
            return (0x06 + 8 * R8.index(to), self.byte(source))
        return (0x01 + 16 * R16.index(to), *self.word(source)) if to in R16 else ()


def is_register(text: str) -> bool:
    return text in R8 or text in R16 or text == "af" or text in INDIRECT


def is_memory(text: str) -> bool:
    return text.startswith("[") and text.endswith("]") and not is_register(text)


def operands(text: str) -> list[str]:
    """Registers in lower case and without blanks in brackets; other operands as written."""
    out = []
    for part in split(text):
        small = re.sub(r"\s+", "", part).lower()
        out.append(small if is_register(small) or small in (*CONDITIONS, "[c]") else part)
    return out


def strip(text: str) -> str:
    """A line without its comment; a semicolon inside quotes is text."""
    return re.sub(r"""("[^"]*"|'.')|;.*$""", lambda match: match.group(1) or "", text).rstrip()


def unrolled(source: str) -> Iterator[Line]:
    """The lines with something on them; what stands between `rept n` and `endr` comes n times."""
    block: list[Line] | None = None
    times = 0
    for number, text in enumerate(source.splitlines(), 1):
        line = strip(text)
        words = line.split()
        if words and words[0].lower() == "rept":
            if block is not None or len(words) != 2 or not words[1].isdecimal():
                raise AssemblyError(
                    f"line {number}: rept takes one plain number and is not nested: {line.strip()!r}"
                )
            block, times = [], int(words[1])
        elif words and words[0].lower() == "endr":
            if block is None:
                raise AssemblyError(f"line {number}: endr without rept")
            for _ in range(times):
                yield from (Line(one.number, one.text) for one in block)
            block = None
        elif words:
            if block is None:
                yield Line(number, line)
            else:
                block.append(Line(number, line))
    if block is not None:
        raise AssemblyError("rept without endr at the end of the text")


def data(word: str, rest: str, encoder: Encoder, charmap: Mapping[str, int]) -> list[int] | None:
    """The bytes of a data directive, or None where `word` is none."""
    out: list[int] = []
    if word == "ds":
        parts = split(rest)
        if len(parts) not in (1, 2):
            raise AssemblyError(f"ds takes a count and perhaps a fill, not {rest!r}")
        count = within(encoder.number(parts[0]), 0, 0x8000, "the size")
        return [encoder.byte(parts[1]) if len(parts) == 2 else 0] * count
    if word not in ("db", "dw"):
        return None
    for part in split(rest):
        if word == "db" and part[:1] == '"':
            if len(part) < 2 or part[-1] != '"':
                raise AssemblyError(f"the text {part} has no closing quote")
            for letter in part[1:-1]:
                if letter not in charmap:
                    raise AssemblyError(f"no tile for the letter {letter!r} in {part}")
                out.append(charmap[letter])
        else:
            out.extend([encoder.byte(part)] if word == "db" else encoder.word(part))
    return out


def assemble(
    source: str,
    size: int = 0x8000,
    charmap: Mapping[str, int] | None = None,
    constants: Mapping[str, int] | None = None,
) -> Program:
    """Assembles a whole cartridge of `size` bytes; unused bytes are zero."""
    names = Names(dict(constants or {}), strict=False)
    encoder, letters = Encoder(names), charmap if charmap is not None else {chr(i): i for i in range(32, 127)}
    lines = list(unrolled(source))
    image, used = bytearray(size), bytearray(size)
    for final in (False, True):
        names.strict, names.scope, names.here = final, "", 0
        for line in lines:
            try:
                for value in statement(line, encoder, letters):
                    if final:
                        within(names.here, 0, size - 1, "the address")
                        if used[names.here]:
                            raise AssemblyError(f"the address ${names.here:04X} is written twice")
                        image[names.here], used[names.here] = value, 1
                    names.here += 1
            except AssemblyError as why:
                raise AssemblyError(f"line {line.number}: {why} (in {line.text.strip()!r})") from None
    return Program(bytes(image), names.known)


def statement(line: Line, encoder: Encoder, letters: Mapping[str, int]) -> list[int] | tuple[int, ...]:
    """Defines what the line defines; returns the bytes that it puts at names.here."""
    names, text = encoder.names, line.text
    constant = CONSTANT.match(text)
    if constant:
        define(names, constant.group(1), encoder.number(constant.group(2)))
        return ()
    label = LABEL.match(text)
    if label:
        name, text = label.groups()
        if not name.startswith("."):
            names.scope = name
        define(names, names.scope + name if name.startswith(".") else name, names.here)
    if not text.strip():
        return ()
    word, _, rest = text.strip().partition(" ")
    word = word.lower()
    if word == "org":
        names.here = within(encoder.number(rest), 0, 0xFFFF, "the address")
        return ()
    placed = data(word, rest, encoder, letters)
    if placed is not None:
        return placed
    made = encoder.encode(word, operands(rest))
    if not made:
        known = {*PLAIN, *PADDED, *ARITHMETIC, *SHIFTS, "ld", "ldh", "inc", "dec", "push", "pop", "jp", "jr"}
        known |= {"call", "ret", "rst", "bit", "res", "set"}
        what = f"{word} takes no operands {rest.strip()!r}" if word in known else f"unknown mnemonic {word!r}"
        raise AssemblyError(what)
    return made


def define(names: Names, name: str, value: int) -> None:
    if not names.strict and name in names.known:
        raise AssemblyError(f"{name} is defined twice")
    names.known[name] = value
