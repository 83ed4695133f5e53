"""An original role-playing cartridge: assembler, game, world compiler, model and solver."""
