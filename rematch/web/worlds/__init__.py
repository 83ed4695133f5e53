"""The pages of the worlds: a page is one module here, one in web/static/, and one entry of PAGES.

The last one, `other`, is that of every world without a page of its own.
"""

from __future__ import annotations

from rematch.web.world_page import WorldPage
from rematch.web.worlds import beasty, gameboy, lattice, other, pursuit

PAGES: tuple[WorldPage, ...] = (pursuit.PAGE, lattice.PAGE, beasty.PAGE, gameboy.PAGE, other.PAGE)
