"""OpenSpiel's games as a world: equal to pyspiel's games, independent of the content of the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rematch.cli import main
from rematch.core.errors import ConfigError
from rematch.core.player import Seat
from rematch.core.world import DECIDED
from rematch.verbs.evaluate import evaluate
from rematch.verbs.tournament import Match, play_match
from rematch.worlds import conformance, registry
from rematch.worlds.conformance import Trial

pyspiel = pytest.importorskip("pyspiel", reason="pip install open_spiel")

from rematch.worlds.openspiel import exploitability as exact  # noqa: E402
from rematch.worlds.openspiel import games, hidden_states, history_table  # noqa: E402
from rematch.worlds.openspiel.bots import bot  # noqa: E402
from rematch.worlds.openspiel.config import Config  # noqa: E402
from rematch.worlds.openspiel.world import SpielWorld  # noqa: E402

MODULE = registry.find("openspiel")
CARDS = "goofspiel(num_cards=3,imp_info=True)"  # joint moves, hidden hands, chance
GAMES = ["kuhn_poker", "leduc_poker", "tic_tac_toe", CARDS, "matrix_mp"]
CERTAIN = ("tic_tac_toe", "matrix_mp")  # games without chance


def random_moves(world: SpielWorld, generator: np.random.Generator) -> Any:
    mask = world.view.mask["player"]
    return np.where(mask, generator.random(mask.shape), -1.0).argmax(-1).astype(np.int32)


def history(world: SpielWorld, row: int) -> list[int]:
    return world.state["history"][row, : world.state["moves"][row]].tolist()  # type: ignore[no-any-return]


def replay(game: Any, moves: list[int]) -> Any:
    """The pyspiel state after these moves."""
    state = game.new_initial_state()
    while moves:
        if state.is_simultaneous_node():
            state.apply_actions(moves[:2])
            moves = moves[2:]
        else:
            state.apply_action(moves[0])
            moves = moves[1:]
    return state


@pytest.mark.parametrize("text", GAMES)
def test_games_pass_the_conformance_test(text: str) -> None:
    trial = Trial(chance=text not in CERTAIN, games=4, steps=16)
    report = conformance.check_game(MODULE, Config(game=text), trial=trial)
    assert {"resample", "save and load", "bot player/random"} <= set(report.passed)


def test_games_written_in_python_are_played() -> None:
    pytest.importorskip("absl", reason="pip install absl-py")
    game = "python_kuhn_poker"
    conformance.check_game(MODULE, Config(game=game), trial=Trial(games=4, steps=16))
    assert nash_conv(game)["nash_conv"] == pytest.approx(nash_conv("kuhn_poker")["nash_conv"])
    with pytest.raises(ConfigError, match="1 players; expected a game of two"):
        Config(game="python_hangman").check()


def test_missing_package_of_python_games_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("open_spiel.python.games")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "absl", None)
    with pytest.raises(ConfigError, match=r"^absl, which OpenSpiel.s games in Python .* install .*absl-py"):
        games.load("python_liars_poker(num_digits=4)", "auto")


# --- equal to pyspiel's games -------------------------------------------------------------------------


def assert_shows(world: SpielWorld, row: int, state: Any) -> None:
    """A running game agrees with its pyspiel state: seats to move, legal moves, both observations."""
    view, game_type = world.view, state.get_game().get_type()
    for seat in (0, 1):
        acts = state.is_simultaneous_node() or state.current_player() == seat
        legal = state.legal_actions(seat) if acts else []
        assert view.acting[row, seat] == (len(legal) > 0)
        assert np.flatnonzero(view.mask["player"][row, seat]).tolist() == legal
        tensor = state.information_state_tensor if game_type.provides_information_state_tensor else None
        obs = (tensor or state.observation_tensor)(seat)
        assert view["player"]["observation"][row, seat].tolist() == np.float32(obs).tolist()
        assert view["player"]["seat"][row, seat, 0] == seat


@pytest.mark.parametrize(("text", "count"), [("kuhn_poker", 400), ("leduc_poker", 400), ("tic_tac_toe", 150),
                                             (CARDS, 250), ("matrix_rps", 100)])  # fmt: skip
def test_random_games_equal_those_of_pyspiel(text: str, count: int) -> None:
    game, world = pyspiel.load_game(text), SpielWorld(Config(game=text), 32)
    generator = np.random.default_rng(1)
    scale, ended_games = max(abs(game.min_utility()), abs(game.max_utility())), 0
    states = [replay(game, history(world, row)) for row in range(32)]
    while ended_games < count:
        moves = random_moves(world, generator)
        for row, state in enumerate(states):
            assert_shows(world, row, state)
            if state.is_simultaneous_node():
                state.apply_actions(moves[row].tolist())
            else:
                state.apply_action(int(moves[row, state.current_player()]))
        before = [len(history(world, row)) for row in range(32)]
        world.step({"player": moves})
        for row, state in enumerate(states):
            if world.view.ended[row]:
                assert state.is_terminal() or state.is_chance_node()
                if state.is_terminal():
                    returns = np.array(state.returns())
                    assert world.view.reward[row].tolist() == np.float32(returns / scale).tolist()
                    assert world.view.outcome[row].tolist() == ((1 + np.sign(returns)) / 2).tolist()
                ended_games += 1
                states[row] = replay(game, history(world, row))
                continue
            moves_so_far = history(world, row)
            for move in moves_so_far[before[row] + (2 if text in (CARDS, "matrix_rps") else 1) :]:
                assert move in dict(state.chance_outcomes())
                state.apply_action(move)
            assert not state.is_terminal() and not state.is_chance_node()


def test_deals_have_equal_frequencies() -> None:
    world, generator = SpielWorld(Config(game="kuhn_poker"), 2000), np.random.default_rng(0)
    deals: dict[tuple[int, ...], int] = {}
    for _ in range(8):
        for row in range(world.games):
            if world.state["time"][row] == 0:
                deal = tuple(history(world, row))
                deals[deal] = deals.get(deal, 0) + 1
        world.step({"player": random_moves(world, generator)})
    total = sum(deals.values())
    assert len(deals) == 6 and total > 5000
    assert max(abs(count / total - 1 / 6) for count in deals.values()) < 5 * np.sqrt(5 / 36 / total)


def test_common_payoff_is_won_by_both_seats() -> None:
    world = SpielWorld(Config(game="matrix_coordination"), 2)
    assert not world.spec.zero_sum
    view = world.step({"player": np.array([[0, 0], [0, 1]], np.int32)})
    assert view.ended.tolist() == [DECIDED] * 2
    assert view.outcome.tolist() == [[1, 1], [0.5, 0.5]] and view.reward.tolist() == [[1, 1], [0, 0]]


# --- independence of the table's content ----------------------------------------------------------------


@pytest.mark.parametrize("text", ["leduc_poker", CARDS, "tic_tac_toe"])
def test_replaced_table_changes_no_game(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, world = SpielWorld(Config(game=text), 24), SpielWorld(Config(game=text), 24)
    parts, one, other = world.parts(3), np.random.default_rng(2), np.random.default_rng(2)
    for step in range(60):
        moves = random_moves(reference, one)
        assert np.array_equal(moves, random_moves(world, other))
        reference.step({"player": moves})
        for part in parts:  # in odd steps the table is full and replaced
            with monkeypatch.context() as patch:
                patch.setattr(history_table, "LIMIT", -1 if step % 2 else history_table.LIMIT)
                part.step({"player": moves[part.first : part.first + part.games]})
        for name in ("reward", "ended", "outcome", "acting", "length"):
            assert np.array_equal(getattr(reference.view, name), getattr(world.view, name)), name
        assert np.array_equal(reference.view["player"]["observation"], world.view["player"]["observation"])
        assert np.array_equal(reference.save(np.arange(24)), world.save(np.arange(24)))


def test_saved_states_do_not_depend_on_the_table() -> None:
    world, generator = SpielWorld(Config(game="leduc_poker"), 16), np.random.default_rng(3)
    for _ in range(5):
        world.step({"player": random_moves(world, generator)})
    rows = np.arange(16, dtype=np.int32)
    saved = world.save(rows)
    history_table._tables.clear()
    fresh = SpielWorld(Config(game="leduc_poker"), 16, seed=9)
    fresh.load(rows, saved)
    assert np.array_equal(fresh.save(rows), saved)
    assert np.array_equal(fresh.view["player"]["observation"], world.view["player"]["observation"])


def test_state_with_illegal_history_is_refused() -> None:
    world = SpielWorld(Config(game="kuhn_poker"), 1)
    rows = np.zeros(1, np.int32)
    for moves in ([0, 0], [0], [0, 1, 5], [0, 1, 1, 1], [2, 1, 0, 0]):
        state = world.state.copy()
        state["history"] = 0
        state["history"][0, : len(moves)] = moves
        state["moves"], state["time"] = len(moves), max(0, len(moves) - 2)
        before = world.save(rows)
        with pytest.raises(ConfigError, match="no state of this world"):
            world.load(rows, state.view(np.uint8).reshape(1, -1))
        assert np.array_equal(world.save(rows), before)


def test_illegal_move_is_refused() -> None:
    world = SpielWorld(Config(game="tic_tac_toe"), 2)
    world.step({"player": np.full((2, 2), 4, np.int32)})
    for move in (4, -1, 9):
        with pytest.raises(ConfigError, match=rf"seat 1 of game 0 chose move {move}, which is not legal"):
            world.step({"player": np.full((2, 2), move, np.int32)})


# --- hidden information ----------------------------------------------------------------------------------


def test_resampled_cards_have_equal_frequencies() -> None:
    world = SpielWorld(Config(game="leduc_poker"), 1)
    rows, counts = np.zeros(1, np.int32), np.zeros(6)
    own_card, other = history(world, 0)[:2]
    for key in range(1500):
        state = world.resample(rows, 0, key).view(world.state.dtype)[0]
        assert state["history"][0, 0] == own_card
        counts[state["history"][0, 1]] += 1
    assert counts[own_card] == 0 and counts[other] > 0
    shares = np.delete(counts, own_card) / counts.sum()
    assert np.abs(shares - 0.2).max() < 5 * np.sqrt(0.16 / 1500)


def test_resample_is_refused_where_openspiel_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_states, "MOST_HISTORIES", 1000)
    world = SpielWorld(Config(game="liars_dice(numdice=2)"), 2)
    with pytest.raises(ConfigError, match="its hidden information cannot be resampled"):
        world.resample(np.arange(2), 0, 1)
    large = SpielWorld(Config(game="leduc_poker(suit_isomorphism=False,players=2)"), 8)  # OpenSpiel can
    generator = np.random.default_rng(0)
    for _ in range(3):
        large.step({"player": random_moves(large, generator)})
    for seat in (0, 1):
        twin = SpielWorld(large.config, 8)
        twin.load(np.arange(8), large.resample(np.arange(8), seat, 5))
        small, other = (one.view["player"]["observation"][:, seat] for one in (twin, large))
        assert np.array_equal(small, other)
        assert not np.array_equal(twin.state["history"], large.state["history"])


# --- NashConv --------------------------------------------------------------------------------------------


class FixedWeights:
    """Plays with fixed weights of the moves, uniform by default."""

    name = "fixed_weights"

    def __init__(self, weights: Any = None) -> None:
        self.weights = weights

    def action_probs(self, seat: Seat) -> Any:
        assert seat.mask is not None
        share = seat.mask * (1.0 if self.weights is None else np.asarray(self.weights))
        return (share / share.sum(1, keepdims=True)).astype(np.float32)


def nash_conv(text: str, weights: Any = None, named: bool = False) -> dict[str, Any]:
    return exact.nash_conv(Config(game=text, named=named), {"player": FixedWeights(weights)}, 1)  # type: ignore[no-any-return]


@pytest.mark.parametrize("text", ["kuhn_poker", "leduc_poker", CARDS])
def test_nash_conv_of_uniform_play_equals_openspiel(text: str) -> None:
    exploitability = pytest.importorskip("open_spiel.python.algorithms.exploitability")
    from open_spiel.python import policy

    game = pyspiel.load_game(text)
    if text == CARDS:
        game = pyspiel.convert_to_turn_based(game)
    expected = exploitability.nash_conv(game, policy.UniformRandomPolicy(game))
    assert nash_conv(text)["nash_conv"] == pytest.approx(expected, abs=1e-6)


def test_nash_conv_equals_values_computed_by_hand() -> None:
    # Matching pennies, both heads with 0.7: each best response gains 0.4 over the value 0.16 or -0.16.
    result = nash_conv("matrix_mp", [0.7, 0.3])
    assert result["value"] == pytest.approx(0.16, abs=1e-6)
    assert result["nash_conv"] == pytest.approx(0.8, abs=1e-6)
    assert nash_conv("kuhn_poker")["value"] == pytest.approx(0.125, abs=1e-6)  # as the game's tables have it
    assert nash_conv("kuhn_poker")["information_states"] == 12


def test_nash_conv_refusal_names_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "more than" in nash_conv("connect_four")["refused"]  # by the estimate alone: far too large
    monkeypatch.setattr(hidden_states, "MOST_HISTORIES", 500)
    assert "more than 500 histories" in nash_conv("liars_dice(dice_sides=3)")["refused"]
    monkeypatch.undo()
    assert "forget" in nash_conv("dark_hex_ir(board_size=2)")["refused"]
    assert exact.refusal(games.load("dark_hex(board_size=2)", "auto")) == ""


# --- information states by number ------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["kuhn_poker", "leduc_poker", CARDS])
def test_state_numbers_equal_information_states(text: str) -> None:
    """Numbers are equal exactly where seat and information-state string are equal."""
    world, plain = SpielWorld(Config(game=text, named=True), 256), SpielWorld(Config(game=text), 256)
    *quantities, count = world.spec.roles["player"].categories
    assert not any(quantities)
    game, generator, texts = pyspiel.load_game(text), np.random.default_rng(0), {}
    for _ in range(12):
        for row in np.flatnonzero(world.view.ended == 0).tolist():
            state = replay(game, history(world, row))
            for seat in (0, 1):
                number = int(world.view["player"]["state"][row, seat, 0])
                assert 0 <= number < count
                info_state = (seat, state.information_state_string(seat))
                assert texts.setdefault(number, info_state) == info_state
        assert (world.view["player"]["observation"] == plain.view["player"]["observation"]).all()
        moves = random_moves(world, generator)
        for both in (world, plain):
            both.step({"player": moves})
    assert len(set(texts.values())) == len(texts)


def test_named_states_pass_conformance_and_keep_nash_conv() -> None:
    conformance.check_game(MODULE, Config(game="leduc_poker", named=True), trial=Trial(games=4, steps=16))
    assert nash_conv("leduc_poker", named=True) == nash_conv("leduc_poker")


def test_numbering_too_many_states_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="named = true: connect_four has more than 300,000 histories; exp"):
        Config(game="connect_four", named=True).check()
    monkeypatch.setattr(hidden_states, "MOST_STATES", 900)
    with pytest.raises(ConfigError, match=r"leduc_poker\(players=2\) has 1,?\d+ information states"):
        Config(game="leduc_poker(players=2)", named=True).check()


# --- refusals --------------------------------------------------------------------------------------------

REFUSED = {
    "kuhn_pokr": "OpenSpiel has no game 'kuhn_pokr'; nearest: kuhn_poker",
    "": "OpenSpiel has no game ''",
    "kuhn_poker(players=3)": "3 players; expected a game of two",
    "kuhn_poker(bogus=1)": "Unknown parameter 'bogus'",
    "kuhn_poker(players=2": "Missing closing bracket",
    "kuhn_poker(players=99)": "does not load it",
    "goofspiel(num_cards=-4)": "no player can move",
    "nfg_game": "does not load it",
    "mfg_crowd_modelling": "mean-field",
    "negotiation": "chance events cannot be listed",
    "liars_dice_ir": "no information-state or observation tensor",
    "hearts": "4 players",
    "go(board_size=25)": "OpenSpiel does not play it",
    "connect_four(rows=-1)": "OpenSpiel does not play it",
    "hanabi(colors=0)": "OpenSpiel ends the process on it (SIGABRT)",
    "universal_poker(numSuits=0)": "OpenSpiel ends the process on it (SIG",
}


@pytest.mark.parametrize("text", REFUSED)
def test_unsupported_games_are_refused_in_one_line(text: str, capfd: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(game=text).check()
    assert REFUSED[text] in str(caught.value) and "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["coop_box_pushing", "dots_and_boxes(num_rows=3,num_cols=2)",
                                  "bargaining(max_turns=1)"])  # fmt: skip
def test_games_longer_than_the_openspiel_bound_are_played(text: str) -> None:
    world = SpielWorld(Config(game=text), 4)
    assert world.game.longest > world.game.spiel.max_history_length()
    generator, ended = np.random.default_rng(0), 0
    while ended < 2:
        legal = world.view.mask["player"] * generator.random(world.view.mask["player"].shape)
        ended += int((world.step({"player": legal.argmax(2).astype(np.int32)}).ended != 0).sum())
    honest = SpielWorld(Config(game="leduc_poker"), 1).game
    assert honest.longest == honest.spiel.max_history_length(), "a correct bound is kept"
    world.state["moves"][0] = world.game.longest
    with pytest.raises(ConfigError, match="the bound that OpenSpiel gives"):
        world._append_moves(np.array([0]), np.array([1]))


def test_missing_observation_tensor_is_refused() -> None:
    with pytest.raises(ConfigError, match="it offers no information-state tensor"):
        Config(game="tic_tac_toe", observation="information_state").check()
    settings = (Config(game="leduc_poker", observation=kind) for kind in ("observation", "auto"))
    small, large = (SpielWorld(each, 1) for each in settings)
    assert small.spec.roles["player"].size < large.spec.roles["player"].size
    assert "observation.private_card_0" in large.spec.roles["player"].columns
    with pytest.raises(ConfigError, match="expected one of random"):
        bot("perfect", "player")


@pytest.mark.parametrize(("text", "random"), [("kuhn_poker", True), ("tic_tac_toe", False)])
def test_greedy_evaluation_plays_all_games_against_the_random_bot(
    text: str, random: bool, tmp_path: Path
) -> None:
    """Chance or the bot makes every game another one; two greedy policies in tic-tac-toe repeat theirs."""
    run = str(tmp_path / "run")
    options = ["--games=64", "--steps=8", "--total_steps=512", "--threads=1", "--evaluation.games=20"]
    assert main.main(["train", "openspiel", "--world.game", text, "--name", run, *options]) == 0
    row = evaluate(run, games=40, greedy=True)["table"][0]
    assert row["games"] == 40 and 0 < row["wins"] < 40
    assert MODULE.random(Config(game=text)) == random
    match = Match(players=(run, run), games=40, greedy=True, flags=["--world.game", text], threads=1)
    assert {entry["games"] for entry in play_match("openspiel", match)["table"]} == {40 if random else 2}


def test_missing_openspiel_prints_the_install_command() -> None:
    without_pyspiel = "import sys; sys.modules['pyspiel'] = None; from rematch.cli.main import main; "
    for words, code in ((["worlds"], 0), (["train", "openspiel"], 2)):
        run = subprocess.run([sys.executable, "-c", f"{without_pyspiel}sys.exit(main({words!r}))"],
                             capture_output=True, text=True)  # fmt: skip
        output = run.stdout + run.stderr
        assert run.returncode == code and "Traceback" not in output
        prefix = "rematch: " if code else "  "  # an error, or a line of `rematch worlds`
        assert f"{prefix}OpenSpiel is not installed: .venv/bin/pip install -c constraints.txt open_" in output
