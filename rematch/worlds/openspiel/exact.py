"""How far a player is from an equilibrium, exactly, by OpenSpiel's own code.

The player is asked for its chances of every move in every information state, as a world shows them to it. The
table goes to OpenSpiel's NashConv (Lanctot et al. 2017): what each seat could gain by a best response, added
up, in the game's own utilities. Joint moves are judged in OpenSpiel's turn-based form of the game, in which
the second to move does not learn what the first chose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from rematch.spec import Floats, Player, Seat

from . import games, hidden
from .games import Game

Chances = list[tuple[int, float]]  # move -> probability


@lru_cache(maxsize=64)
def refusal(game: Game) -> str:
    """Why a game cannot be judged exactly, or an empty string."""
    about = game.spiel.get_type()
    if not about.provides_information_state_string:
        return f"{game.text} does not name its information states"
    tree = hidden.whole(game)
    if tree is None:
        return f"{game.text} has more than {hidden.MOST_HISTORIES:,} histories"
    count = sum(len(set(known.values())) for known in tree.known)
    if count > hidden.MOST_STATES:
        return f"{game.text} has {count:,} information states; at most {hidden.MOST_STATES:,} are judged"
    if not remembers(tree):
        return f"in {game.text} players forget what they knew: a best response cannot be computed by parts"
    return ""


def remembers(tree: hidden.Tree) -> bool:
    """Perfect recall: an information state is always reached by the same own states and moves."""
    t = tree.table
    for seat in (0, 1):
        path: dict[int, Any] = {0: ()}
        told: dict[str, Any] = {}
        for row in range(len(t.histories)):
            mine = path.pop(row)
            decides = row in tree.known[seat] and t.acting[row, seat]
            if decides and told.setdefault(tree.known[seat][row], mine) != mine:
                return False
            for edge in t.edges_of(row):
                moves = t.moves_of(row, edge)
                own = moves[seat] if len(moves) == 2 else moves[0]
                path[int(t.child[row, edge])] = hash((mine, tree.known[seat][row], own)) if decides else mine
    return True


def representatives(tree: hidden.Tree, seat: int) -> dict[str, int]:
    """Information state of a seat that is to move -> the first row in it."""
    out: dict[str, int] = {}
    for row, text in tree.known[seat].items():
        if tree.table.acting[row, seat]:
            out.setdefault(text, row)
    return out


def asked(make: Callable[..., Any], config: Any, player: Any, game: Game, seat: int) -> dict[int, Chances]:
    """The player's chances in one row of each information state of a seat, by the very path it plays by."""
    tree = hidden.whole(game)
    assert tree is not None
    rows = list(representatives(tree, seat).values())
    world = make(config, len(rows))
    states, t = world.state.copy(), tree.table
    for i, row in enumerate(rows):
        moves = np.frombuffer(t.histories[row], states["history"].dtype)
        states["history"][i] = 0
        states["history"][i, : len(moves)] = moves
        states["moves"][i], states["time"][i] = len(moves), t.depth[row]
    every = np.arange(len(rows), dtype=np.int32)
    world.load(every, states.view(np.uint8).reshape(len(rows), -1))
    (role,) = world.spec.roles.values()
    sight = np.concatenate([world.view[role.name][f.name][:, seat] for f in role.fields], -1)
    mask = world.view.mask[role.name][:, seat].copy()
    chances: Floats = player.chances(Seat(role, seat, world, every, np.ascontiguousarray(sight), mask))
    out: dict[int, Chances] = {}
    for i, row in enumerate(rows):
        legal = np.flatnonzero(mask[i]).tolist()
        share = chances[i, legal].astype(np.float64)
        out[row] = list(zip(legal, (share / share.sum()).tolist()))
    return out


def exact(make: Callable[..., Any], config: Any, players: Mapping[str, Player]) -> dict[str, Any]:
    """nash_conv, the first seat's value and the number of information states; or why it is `refused`."""
    game = config.load()
    (player,) = players.values()
    if why := refusal(game):
        return {"refused": why}
    tree, spiel, module = hidden.whole(game), game.spiel, games.pyspiel()
    assert tree is not None
    in_turns = spiel.get_type().dynamics == module.GameType.Dynamics.SEQUENTIAL
    judged = spiel if in_turns else module.convert_to_turn_based(spiel)
    policy: dict[str, Chances] = {}
    for seat in (0, 1):
        for row, chances in asked(make, config, player, game, seat).items():
            name = tree.known[seat][row] if in_turns else turn_name(judged, tree, row, seat)
            policy[name] = chances
    returns = module.expected_returns(judged.new_initial_state(), module.TabularPolicy(policy), -1, True)
    return {
        "nash_conv": float(module.nash_conv(judged, policy)),
        "value": float(returns[0]),
        "information_states": float(len(policy)),
    }


def turn_name(judged: Any, tree: hidden.Tree, row: int, seat: int) -> str:
    """What the turn-based form of the game calls this seat's information state in this history."""
    state, t = judged.new_initial_state(), tree.table
    for move in np.frombuffer(t.histories[row], t.codes).tolist():
        # A seat that cannot move in a joint move has a 0 in our history and no turn in that form.
        if state.is_chance_node() or move in state.legal_actions():
            state.apply_action(move)
    if state.current_player() != seat:
        state.apply_action(state.legal_actions()[0])
    text: str = state.information_state_string(seat)
    return text
