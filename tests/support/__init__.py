"""Support code of the tests: toy worlds, references, fixtures, tiny runs."""
