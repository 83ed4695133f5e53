"""State that playing reads or changes beside the world and the seats: for games in other processes.

A collector on threads shares memory with the components. A collector whose games are played elsewhere sends
them what they read before each rollout, and takes back what they changed. Components whose players keep a
recurrent state, follow a demonstration or capture games describe that here; none of them sees where the games
are played.
"""

from __future__ import annotations

from rematch.core.arrays import Tree


class PlayState:
    """Override what a rollout needs; the defaults hold nothing.

    `games` are the numbers of the games of one part in the whole batch. Trees hold arrays, numbers, texts and
    lists.
    """

    def shared(self) -> Tree:
        """Before a rollout: what the games of all parts read."""
        return {}

    def load_shared(self, tree: Tree) -> None:
        """Where the games are played: the inverse of `shared`."""

    def inputs(self, games: slice) -> Tree:
        """Before a rollout: what these games read."""
        return {}

    def load_inputs(self, tree: Tree, games: slice) -> None:
        """Where the games are played: the inverse of `inputs`."""

    def results(self, games: slice) -> Tree:
        """Where the games are played, after a rollout: what these games have changed."""
        return {}

    def load_results(self, tree: Tree, games: slice) -> None:
        """After a rollout: the inverse of `results`."""
