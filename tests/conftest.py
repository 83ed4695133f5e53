"""How hypothesis searches: the same examples always, unless HYPOTHESIS_PROFILE=search asks for new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
