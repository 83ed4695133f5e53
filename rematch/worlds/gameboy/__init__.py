"""The Game Boy world: role-playing cartridges on an emulator."""
