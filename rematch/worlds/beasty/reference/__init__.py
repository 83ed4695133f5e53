"""The readable rules, bots and search of Beasty Bar that the C code is compared with."""
