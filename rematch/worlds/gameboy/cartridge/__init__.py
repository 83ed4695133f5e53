"""An original role-playing cartridge: assembler, game, world compiler, model and solver (docs/gameboy spec, section 1)."""
