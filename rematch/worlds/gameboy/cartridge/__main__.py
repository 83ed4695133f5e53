"""Command line: python -m rematch.worlds.gameboy.cartridge SIZE --seed N --out FILE.gb [--solution]."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rematch.core.errors import ConfigError
from rematch.worlds.gameboy.cartridge import check, compiler, constants, solver, world_generator


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rematch.worlds.gameboy.cartridge",
        allow_abbrev=False,
        description="Build a role-playing cartridge for a Game Boy emulator.",
    )
    parser.add_argument(
        "size", help=f"one of {', '.join(world_generator.SIZES)}, or the text file of a world"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the world's layout and of its random numbers"
    )
    parser.add_argument("--out", type=Path, help="file for the ROM image")
    parser.add_argument(
        "--solution", action="store_true", help="print the inputs that finish the game, one per action"
    )
    parser.add_argument(
        "--text", action="store_true", help="print the world as text, which can be edited and compiled"
    )
    parser.add_argument(
        "--check",
        type=int,
        default=0,
        metavar="STEPS",
        help="press STEPS random buttons and report what they reach",
    )
    parser.add_argument(
        "--replay", action="store_true", help="play the solution on the emulator from power-on"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    args = build_parser().parse_args(arguments)
    try:
        cartridge = load_cartridge(args.size, args.seed)
        if args.text:
            print(cartridge.world, end="")
        if args.out is not None:
            args.out.write_bytes(cartridge.rom)
        if args.solution:
            inputs = cartridge.solution
            print(*(constants.ACTIONS[action] for action in inputs), sep="\n")
            fewest = solver.lower_bound(cartridge.atlas)
            summary = f"{len(inputs)} actions of {constants.TICKS} ticks; no solution has fewer than {fewest}"
            print(summary, file=sys.stderr)
        if args.check < 0:
            raise ConfigError(f"--check {args.check}: expected 0 or more steps")
        if args.check:
            print(check.random_walk(cartridge.atlas, cartridge.seed, args.check))
        if args.replay:
            print(check.replay(cartridge))
        if args.out is None and not (args.text or args.solution or args.check or args.replay):
            raise ConfigError(
                "nothing to do: expected --out FILE, --solution, --text, --check STEPS or --replay"
            )
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size = f"{len(cartridge.maps)} maps, {cartridge.atlas.badges} badges"
    print(f"{cartridge.name}, seed {cartridge.seed}: {size}, SHA-1 {cartridge.sha1}", file=sys.stderr)
    return 0


def load_cartridge(size: str, seed: int) -> compiler.Cartridge:
    """Compiles a world of this size, or the world in a text file."""
    if size not in world_generator.SIZES and ("." in size or "/" in size):
        try:
            return compiler.compile_world(Path(size).read_text(), Path(size).stem, seed)
        except UnicodeDecodeError:
            raise ConfigError(f"{size}: expected a text file with a world") from None
    return compiler.build(size, seed)


if __name__ == "__main__":
    sys.exit(main())
