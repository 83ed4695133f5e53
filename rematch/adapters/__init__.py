"""Worlds as Gymnasium and PettingZoo environments.

Importing this package registers the worlds with Gymnasium, where it is installed:
`gymnasium.make("rematch/Pursuit-v0")`.
"""

from __future__ import annotations

import contextlib

from rematch.core.errors import NotInstalled

with contextlib.suppress(NotInstalled):
    from rematch.adapters import gymnasium_env as gymnasium_env
