"""SM83 assembler: each of the 500 opcodes, expressions, data, error messages."""

from __future__ import annotations

import pytest

from rematch.worlds.gameboy.cartridge.assembler import assemble
from rematch.worlds.gameboy.cartridge.expressions import AssemblyError

# The instruction set in rows of eight, independent of the assembler; "-" is no instruction.
# n8 is $12, n16 $3456, e8 a jump to itself plus 2 (offset 0), r8 the signed -2.
TABLE = """
nop|ld bc,n16|ld [bc],a|inc bc|inc b|dec b|ld b,n8|rlca
ld [n16],sp|add hl,bc|ld a,[bc]|dec bc|inc c|dec c|ld c,n8|rrca
stop|ld de,n16|ld [de],a|inc de|inc d|dec d|ld d,n8|rla
jr e8|add hl,de|ld a,[de]|dec de|inc e|dec e|ld e,n8|rra
jr nz,e8|ld hl,n16|ld [hl+],a|inc hl|inc h|dec h|ld h,n8|daa
jr z,e8|add hl,hl|ld a,[hl+]|dec hl|inc l|dec l|ld l,n8|cpl
jr nc,e8|ld sp,n16|ld [hl-],a|inc sp|inc [hl]|dec [hl]|ld [hl],n8|scf
jr c,e8|add hl,sp|ld a,[hl-]|dec sp|inc a|dec a|ld a,n8|ccf
"""
HIGH = """
ret nz|pop bc|jp nz,n16|jp n16|call nz,n16|push bc|add a,n8|rst $00
ret z|ret|jp z,n16|-|call z,n16|call n16|adc a,n8|rst $08
ret nc|pop de|jp nc,n16|-|call nc,n16|push de|sub a,n8|rst $10
ret c|reti|jp c,n16|-|call c,n16|-|sbc a,n8|rst $18
ldh [a8],a|pop hl|ld [c],a|-|-|push hl|and a,n8|rst $20
add sp,r8|jp hl|ld [n16],a|-|-|-|xor a,n8|rst $28
ldh a,[a8]|pop af|ld a,[c]|di|-|push af|or a,n8|rst $30
ld hl,sp+r8|ld sp,hl|ld a,[n16]|ei|-|-|cp a,n8|rst $38
"""
NAMES = ["b", "c", "d", "e", "h", "l", "[hl]", "a"]
FILLED = {
    "n16": ("$3456", [0x56, 0x34]), "n8": ("$12", [0x12]), "e8": ("@+2", [0]), "r8": ("-2", [0xFE]),
    "a8": ("$FF80", [0x80]),
}  # fmt: skip


def opcodes() -> list[tuple[str, list[int]]]:
    """(text, bytes) of every instruction."""
    out: list[tuple[str, list[int]]] = []
    low = [cell for row in TABLE.split("\n") if row for cell in row.split("|")]
    high = [cell for row in HIGH.split("\n") if row for cell in row.split("|")]
    for first, cells in ((0x00, low), (0xC0, high)):
        for number, cell in enumerate(cells, first):
            if cell == "-":
                continue
            text, rest = cell.replace("sp+r8", "sp-2"), [0xFE] if "sp+r8" in cell else []
            for name in FILLED:
                if name in text:
                    text, rest = text.replace(name, FILLED[name][0]), FILLED[name][1]
            out.append((text, [number, *rest, *([0] if cell == "stop" else [])]))
    for number in range(0x40, 0x80):
        if number != 0x76:
            out.append((f"ld {NAMES[number >> 3 & 7]}, {NAMES[number & 7]}", [number]))
    out.append(("halt", [0x76, 0]))
    operations = ["add", "adc", "sub", "sbc", "and", "xor", "or", "cp"]
    out += [(f"{operations[n >> 3 & 7]} a, {NAMES[n & 7]}", [n]) for n in range(0x80, 0xC0)]
    shifts = ["rlc", "rrc", "rl", "rr", "sla", "sra", "swap", "srl"]
    out += [(f"{shifts[n >> 3]} {NAMES[n & 7]}", [0xCB, n]) for n in range(0x40)]
    for kind, first in (("bit", 0x40), ("res", 0x80), ("set", 0xC0)):
        out += [(f"{kind} {n >> 3}, {NAMES[n & 7]}", [0xCB, first + n]) for n in range(0x40)]
    return out


def test_every_opcode() -> None:
    instructions = opcodes()
    firsts = {tuple(code[: 1 + (code[0] == 0xCB)]) for _, code in instructions}
    assert len(instructions) == len(firsts) == 500  # 244 of one byte, 256 behind the prefix
    for text, code in instructions:
        assert list(assemble(text, 8).image[: len(code)]) == code, text
        assert list(assemble(" " + text.upper(), 8).image[: len(code)]) == code, text
    whole = "\n".join(text for text, _ in instructions)  # in one text: the first pass finds the right lengths
    joined = [byte for _, code in instructions for byte in code]
    assert list(assemble(whole).image[: len(joined)]) == joined


def test_other_spellings() -> None:
    assert assemble("add b", 1) == assemble("add a, b", 1) and assemble("cp 3", 2) == assemble("cp a, 3", 2)
    assert assemble("jp [hl]", 1).image == b"\xe9" and assemble("ld a, [hli]", 1).image == b"\x2a"
    assert assemble("ld hl, sp + 3", 2).image == b"\xf8\x03"
    assert assemble("ld a, [ hl + ]", 1).image == b"\x2a"


def test_labels_constants_expressions_and_data() -> None:
    text = """
    SIZE equ 3 * (2 + 2)       ; a comment; with two
    org $10
    first: jr .on
    .on: db SIZE, "A;B", 'x', -1, low($1234), high($1234), 1 << 3 | %101, ~0 & 15, 7 / 2 % 2
    second: jr .on
    .on: dw first, second.on, @
    ds 2, $AA
    rept 2
      inc a
    endr
    """
    program = assemble(text, 0x40)
    expected = [
        0x18,
        0,
        12,
        *b"A;B",
        ord("x"),
        255,
        0x34,
        0x12,
        13,
        15,
        1,
        0x18,
        0,
        0x10,
        0,
        0x1F,
        0,
        0x1F,
        0,
    ]
    expected += [0xAA, 0xAA, 0x3C, 0x3C]
    assert list(program.image[0x10 : 0x10 + len(expected)]) == expected
    assert program.symbols["first.on"] == 0x12 and program.symbols["second"] == 0x1D
    assert assemble('db "AB"', 2, charmap={"A": 200, "B": 7}).image == bytes([200, 7])


@pytest.mark.parametrize(("text", "message"), [
    ("nop\n jr far\n ds 200\nfar:", "line 2: the jump to 'far', a distance of 200 is out of range -128 "),
    ("far: ds 127\n jr far", "a distance of -129"),
    ("jp nowhere", "line 1: unknown label or constant 'nowhere'"),
    ("jr .no", "unknown label or constant '.no'"),
    ("nop\nfrob a", "line 2: unknown mnemonic 'frob'"),
    ("ld a, 256", "line 1: the byte '256' = 256 is out of range -128 to 255"),
    ("ld hl, $10000", "the word '$10000' = 65536 is out of range"),
    ("add sp, 128", "the offset '128' = 128 is out of range -128 to 127"),
    ("ldh [$C000], a", "the high address '[$C000]' = 49152 is out of range 65280 to 65535"),
    ("bit 8, a", "the bit 8 is out of range 0 to 7"),
    ("rst 3", "expected one of $00"),
    ("ld [hl], [hl]", "ld takes no operands '[hl], [hl]'"),
    ("ld b, [de]", "ld takes no operands"),
    ("ld bc, de", "ld takes no operands"),
    ("push sp", "push takes no operands 'sp'"),
    ("jp hl, 3", "jp takes no operands"),
    ("jr hl", "jr takes no operands"),
    ("ret po", "ret takes no operands"),
    ("add hl, 3", "add takes no operands"),
    ("inc", "inc takes no operands ''"),
    ("x: nop\nx: nop", "line 2: x is defined twice"),
    ("x equ 1\nx equ 2", "x is defined twice"),
    ("ds 9", "the address 8 is out of range 0 to 7"),
    ("nop\norg 0\nnop", "the address $0000 is written twice"),
    ('db "é"', "no tile for the letter 'é'"),
    ("db 1 +", "ends too early"),
    ("db (1", "a bracket is not closed"),
    ("db 1 2", "'2' is unexpected"),
    ("db #", "cannot read '#'"),
    ("db 1 / 0", "division by zero"),
    ("rept 2\nnop", "rept without endr"),
    ("endr", "endr without rept"),
    ("rept x\nnop\nendr", "rept takes one plain number"),
])  # fmt: skip
def test_mistakes_are_named_with_their_line(text: str, message: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble(text, 0x400 if "jump" in message or "distance" in message else 8)
    assert message in str(caught.value)
