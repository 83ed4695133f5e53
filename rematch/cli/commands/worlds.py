"""`rematch worlds` and `rematch recipes`: what there is."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.cli.options import Options
from rematch.core.errors import ConfigError


def list_worlds(words: Sequence[str]) -> int:
    from rematch.worlds import registry

    Options(words).only(0, "rematch worlds")
    for name in registry.names():
        module = registry.find(name)
        print(f"{name}: {(module.__doc__ or '').strip().splitlines()[0]}")
        try:
            spec = module.make(module.Config(), 1, 0, 0).spec
        except ConfigError as error:  # it needs a library that is not there
            print(f"  {error}")
            continue
        for role, about in spec.roles.items():
            actions = f"{about.actions.kind} actions {', '.join(about.actions.names)}"
            scripted = ", ".join(module.BOTS.get(role, ())) or "none"
            print(f"  {role}: sees {about.size} numbers, {actions}; scripted: {scripted}")
    return 0
