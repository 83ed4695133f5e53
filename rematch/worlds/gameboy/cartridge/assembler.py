"""A two-pass assembler for the SM83, the processor of the Game Boy.

    assemble("start: ld a, [hl+]\\n jr start") -> Program(image, symbols)

The first pass finds the length of every line and the address of every label, the second writes the bytes.
The syntax is that of the manual: `ld a, [hl+]`, `jr nz, .loop`, `ldh [rP1], a`. Labels end in a colon; a
label with a leading dot belongs to the last label without one. `NAME equ expression` names a number.
`org`, `db`, `dw`, `ds count[, fill]` and `rept count` … `endr` place data. There is no include: the caller
joins the texts. There is no `eval`: expressions.py parses expressions (operators and precedence of C,
`$1F`, `%101`, `'A'`, `@` for the current address, `low()` and `high()`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rematch.worlds.gameboy.cartridge.expressions import AssemblyError, Expression, SymbolTable, check_range

R8 = ("b", "c", "d", "e", "h", "l", "[hl]", "a")
R16 = ("bc", "de", "hl", "sp")
PUSH_REGISTERS = ("bc", "de", "hl", "af")
CONDITIONS = ("nz", "z", "nc", "c")
ARITHMETIC = ("add", "adc", "sub", "sbc", "and", "xor", "or", "cp")
SHIFTS = ("rlc", "rrc", "rl", "rr", "sla", "sra", "swap", "srl")
SINGLE_OPCODES = {
    "nop": 0x00, "rlca": 0x07, "rrca": 0x0F, "rla": 0x17, "rra": 0x1F, "daa": 0x27, "cpl": 0x2F, "scf": 0x37,
    "ccf": 0x3F, "ret": 0xC9, "reti": 0xD9, "di": 0xF3, "ei": 0xFB,
}  # fmt: skip
# The processor may skip the byte after these two (`halt` with interrupts off, `stop` always): it is zero.
PADDED_OPCODES = {"halt": (0x76, 0x00), "stop": (0x10, 0x00)}
INDIRECT = {"[bc]": 0x02, "[de]": 0x12, "[hl+]": 0x22, "[hli]": 0x22, "[hl-]": 0x32, "[hld]": 0x32}

LABEL = re.compile(r"\s*(\.?[A-Za-z_]\w*):\s*(.*)$")
CONSTANT = re.compile(r"\s*([A-Za-z_]\w*)\s+equ\s+(.*)$", re.I)


@dataclass(frozen=True)
class Program:
    image: bytes
    symbols: dict[str, int]


@dataclass
class Line:
    """One line of the source: its number, text, enclosing label and address."""

    number: int
    text: str
    scope: str = ""
    address: int = 0


def split_operands(text: str) -> list[str]:
    """Splits a text at the commas outside quotes."""
    parts = re.findall(r"""(?:"[^"]*"|'.'|[^,"])+""", text)
    return [part.strip() for part in parts]


@dataclass
class Encoder:
    """Encodes one instruction; labels and constants come from `symbols`."""

    symbols: SymbolTable

    def number(self, text: str) -> int:
        return int(text) if text.isdecimal() else Expression(text, self.symbols).value()

    def byte(self, text: str) -> int:
        return check_range(self.number(text), -128, 255, f"the byte {text!r} =") & 0xFF

    def word(self, text: str) -> tuple[int, int]:
        value = check_range(self.number(text), -32768, 65535, f"the word {text!r} =") & 0xFFFF
        return value & 0xFF, value >> 8

    def signed(self, text: str) -> int:
        return check_range(self.number(text), -128, 127, f"the offset {text!r} =") & 0xFF

    def relative(self, text: str) -> int:
        if not self.symbols.strict:
            return 0
        distance = self.number(text) - (self.symbols.address + 2)
        return check_range(distance, -128, 127, f"the jump to {text!r}, a distance of") & 0xFF

    def high(self, text: str) -> int:
        value = self.number(text[1:-1])
        if not self.symbols.strict:
            return 0
        return check_range(value, 0xFF00, 0xFFFF, f"the high address {text!r} =") & 0xFF

    def encode(self, mnemonic: str, ops: list[str]) -> tuple[int, ...]:
        """Bytes of one instruction; an empty tuple if no instruction has this form."""
        count = len(ops)
        if not count and mnemonic in SINGLE_OPCODES:
            return (SINGLE_OPCODES[mnemonic],)
        if not count and mnemonic in PADDED_OPCODES:
            return PADDED_OPCODES[mnemonic]
        if mnemonic in ("ld", "ldh") and count == 2:
            return self.load(mnemonic, *ops)
        if mnemonic in ARITHMETIC:
            if count == 2 and mnemonic == "add" and ops[0] in ("hl", "sp"):
                if ops[0] == "sp":
                    return (0xE8, self.signed(ops[1]))
                return (0x09 + 16 * R16.index(ops[1]),) if ops[1] in R16 else ()
            if count == 2 and ops[0] == "a":  # `add a, b` and `add b` are the same
                ops = ops[1:]
            return self.arithmetic(8 * ARITHMETIC.index(mnemonic), ops) if len(ops) == 1 else ()
        if mnemonic in ("inc", "dec") and count == 1:
            decrement = mnemonic == "dec"
            if ops[0] in R8:
                return (0x04 + decrement + 8 * R8.index(ops[0]),)
            return (0x03 + 8 * decrement + 16 * R16.index(ops[0]),) if ops[0] in R16 else ()
        if mnemonic in ("push", "pop") and count == 1 and ops[0] in PUSH_REGISTERS:
            return (0xC1 + 4 * (mnemonic == "push") + 16 * PUSH_REGISTERS.index(ops[0]),)
        if mnemonic in ("jp", "jr", "call", "ret"):
            return self.branch(mnemonic, ops)
        if mnemonic == "rst" and count == 1:
            target = self.number(ops[0])
            if target not in range(0, 0x40, 8):
                raise AssemblyError(f"rst {ops[0]}: expected one of $00, $08 … $38")
            return (0xC7 + target,)
        if mnemonic in SHIFTS and count == 1 and ops[0] in R8:
            return (0xCB, 8 * SHIFTS.index(mnemonic) + R8.index(ops[0]))
        if mnemonic in ("bit", "res", "set") and count == 2 and ops[1] in R8:
            bit = check_range(self.number(ops[0]), 0, 7, "the bit")
            return (0xCB, 0x40 * (1 + ("bit", "res", "set").index(mnemonic)) + 8 * bit + R8.index(ops[1]))
        return ()

    def arithmetic(self, operation: int, ops: list[str]) -> tuple[int, ...]:
        if ops[0] in R8:
            return (0x80 + operation + R8.index(ops[0]),)
        return () if is_register(ops[0]) else (0xC6 + operation, self.byte(ops[0]))

    def branch(self, mnemonic: str, ops: list[str]) -> tuple[int, ...]:
        if mnemonic == "jp" and ops in (["hl"], ["[hl]"]):
            return (0xE9,)
        conditional = bool(ops) and ops[0] in CONDITIONS and len(ops) == 1 + (mnemonic != "ret")
        condition_bits = 8 * CONDITIONS.index(ops[0]) if conditional else 0
        if mnemonic == "ret":
            return (0xC0 + condition_bits,) if conditional else ()
        if (not conditional and len(ops) != 1) or is_register(ops[-1]):
            return ()
        if mnemonic == "jr":
            return (0x20 + condition_bits if conditional else 0x18, self.relative(ops[-1]))
        plain_opcode, conditional_opcode = {"jp": (0xC3, 0xC2), "call": (0xCD, 0xC4)}[mnemonic]
        return (conditional_opcode + condition_bits if conditional else plain_opcode, *self.word(ops[-1]))

    def load(self, mnemonic: str, target: str, source: str) -> tuple[int, ...]:
        if mnemonic == "ldh" or "[c]" in (target, source):
            if (target, source) in (("[c]", "a"), ("a", "[c]")):
                return (0xE2 if source == "a" else 0xF2,)
            if source == "a" and is_memory(target):
                return (0xE0, self.high(target))
            return (0xF0, self.high(source)) if target == "a" and is_memory(source) else ()
        if target in R8 and source in R8:
            return () if target == source == "[hl]" else (0x40 + 8 * R8.index(target) + R8.index(source),)
        if target in INDIRECT and source == "a":
            return (INDIRECT[target],)
        if target == "a" and source in INDIRECT:
            return (INDIRECT[source] + 8,)
        if (target, source) == ("sp", "hl"):
            return (0xF9,)
        if target == "hl" and re.match(r"sp\s*[+-]", source, re.I):
            return (0xF8, self.signed("0" + source[2:]))
        if target == "a" and is_memory(source):
            return (0xFA, *self.word(source[1:-1]))
        if is_memory(target) and source in ("a", "sp"):
            return (0xEA if source == "a" else 0x08, *self.word(target[1:-1]))
        if is_register(source) or is_memory(source):
            return ()
        if target in R8:
            return (0x06 + 8 * R8.index(target), self.byte(source))
        return (0x01 + 16 * R16.index(target), *self.word(source)) if target in R16 else ()


def is_register(text: str) -> bool:
    return text in R8 or text in R16 or text == "af" or text in INDIRECT


def is_memory(text: str) -> bool:
    return text.startswith("[") and text.endswith("]") and not is_register(text)


def parse_operands(text: str) -> list[str]:
    """Operands of an instruction: registers in lower case without spaces, others unchanged."""
    out = []
    for part in split_operands(text):
        register = re.sub(r"\s+", "", part).lower()
        out.append(register if is_register(register) or register in (*CONDITIONS, "[c]") else part)
    return out


def strip_comment(text: str) -> str:
    """Removes the comment of a line; a semicolon inside quotes is text."""
    return re.sub(r"""("[^"]*"|'.')|;.*$""", lambda match: match.group(1) or "", text).rstrip()


def expand_repeats(source: str) -> Iterator[Line]:
    """Yields the non-empty lines; the lines between `rept n` and `endr` are repeated n times."""
    block: list[Line] | None = None
    count = 0
    for number, text in enumerate(source.splitlines(), 1):
        line = strip_comment(text)
        words = line.split()
        if words and words[0].lower() == "rept":
            if block is not None or len(words) != 2 or not words[1].isdecimal():
                raise AssemblyError(
                    f"line {number}: rept takes one plain number and cannot be nested: {line.strip()!r}"
                )
            block, count = [], int(words[1])
        elif words and words[0].lower() == "endr":
            if block is None:
                raise AssemblyError(f"line {number}: endr without rept")
            for _ in range(count):
                yield from (Line(repeated.number, repeated.text) for repeated in block)
            block = None
        elif words:
            if block is None:
                yield Line(number, line)
            else:
                block.append(Line(number, line))
    if block is not None:
        raise AssemblyError("rept without endr at the end of the text")


def encode_data(
    directive: str, operands: str, encoder: Encoder, charmap: Mapping[str, int]
) -> list[int] | None:
    """Bytes of a data directive; None if `directive` is not one."""
    out: list[int] = []
    if directive == "ds":
        parts = split_operands(operands)
        if len(parts) not in (1, 2):
            raise AssemblyError(f"ds takes a count and an optional fill byte, not {operands!r}")
        count = check_range(encoder.number(parts[0]), 0, 0x8000, "the size")
        return [encoder.byte(parts[1]) if len(parts) == 2 else 0] * count
    if directive not in ("db", "dw"):
        return None
    for part in split_operands(operands):
        if directive == "db" and part[:1] == '"':
            if len(part) < 2 or part[-1] != '"':
                raise AssemblyError(f"the text {part} has no closing quote")
            for letter in part[1:-1]:
                if letter not in charmap:
                    raise AssemblyError(f"no tile for the letter {letter!r} in {part}")
                out.append(charmap[letter])
        else:
            out.extend([encoder.byte(part)] if directive == "db" else encoder.word(part))
    return out


def assemble(
    source: str,
    size: int = 0x8000,
    charmap: Mapping[str, int] | None = None,
    constants: Mapping[str, int] | None = None,
) -> Program:
    """Assembles an image of `size` bytes; unused bytes are zero."""
    symbols = SymbolTable(dict(constants or {}), strict=False)
    encoder, letters = (
        Encoder(symbols),
        charmap if charmap is not None else {chr(i): i for i in range(32, 127)},
    )
    lines = list(expand_repeats(source))
    image, written = bytearray(size), bytearray(size)
    for final_pass in (False, True):
        symbols.strict, symbols.scope, symbols.address = final_pass, "", 0
        for line in lines:
            try:
                for value in assemble_line(line, encoder, letters):
                    if final_pass:
                        check_range(symbols.address, 0, size - 1, "the address")
                        if written[symbols.address]:
                            raise AssemblyError(f"the address ${symbols.address:04X} is written twice")
                        image[symbols.address], written[symbols.address] = value, 1
                    symbols.address += 1
            except AssemblyError as error:
                raise AssemblyError(f"line {line.number}: {error} (in {line.text.strip()!r})") from None
    return Program(bytes(image), symbols.values)


def assemble_line(line: Line, encoder: Encoder, letters: Mapping[str, int]) -> list[int] | tuple[int, ...]:
    """Defines the symbols of a line; returns the bytes that it places at symbols.address."""
    symbols, text = encoder.symbols, line.text
    constant = CONSTANT.match(text)
    if constant:
        define(symbols, constant.group(1), encoder.number(constant.group(2)))
        return ()
    label = LABEL.match(text)
    if label:
        name, text = label.groups()
        if not name.startswith("."):
            symbols.scope = name
        define(symbols, symbols.scope + name if name.startswith(".") else name, symbols.address)
    if not text.strip():
        return ()
    mnemonic, _, operands = text.strip().partition(" ")
    mnemonic = mnemonic.lower()
    if mnemonic == "org":
        symbols.address = check_range(encoder.number(operands), 0, 0xFFFF, "the address")
        return ()
    data = encode_data(mnemonic, operands, encoder, letters)
    if data is not None:
        return data
    code = encoder.encode(mnemonic, parse_operands(operands))
    if not code:
        mnemonics = {
            *SINGLE_OPCODES,
            *PADDED_OPCODES,
            *ARITHMETIC,
            *SHIFTS,
            "ld",
            "ldh",
            "inc",
            "dec",
            "push",
            "pop",
            "jp",
            "jr",
        }
        mnemonics |= {"call", "ret", "rst", "bit", "res", "set"}
        reason = (
            f"{mnemonic} takes no operands {operands.strip()!r}"
            if mnemonic in mnemonics
            else f"unknown mnemonic {mnemonic!r}"
        )
        raise AssemblyError(reason)
    return code


def define(symbols: SymbolTable, name: str, value: int) -> None:
    if not symbols.strict and name in symbols.values:
        raise AssemblyError(f"{name} is defined twice")
    symbols.values[name] = value
