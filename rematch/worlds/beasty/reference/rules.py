"""The readable rules: a slow engine with the text of the rules as quotes. rules.h does the same.

It works on `State`, to try moves, bots and puzzles in Python:

    state = deal(orders, config)
    state = play(state, legal(state, config)[0], config)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..config import ACTS, POINTS, RECURRING, SPECIES, STRENGTH, Act, Config
from ..state import HAND, PLACES, Card, State


def deal(orders: Sequence[Sequence[str]], config: Config, first: int = 0) -> State:
    """ "Each player owns the same 12 animals, shuffled; hand 4, deck 8." orders: shuffled cards by player."""
    return State(
        line=[],
        hands=[set(order[:HAND]) for order in orders],
        decks=[list(order[HAND:]) for order in orders],
        bar=[set() for _ in orders],
        thats_it=[set() for _ in orders],
        turn=config.first if config.first >= 0 else first,
    )


def legal(state: State, config: Config) -> list[int]:
    """Ids of the legal actions of the player to move. "No passing.\""""
    hand, in_line = state.hands[state.turn], {name for _, name in state.line}
    return [number for number, act in enumerate(ACTS)
            if act.card in hand and _is_legal(act, len(state.line), in_line, config)]  # fmt: skip


def _is_legal(act: Act, n: int, in_line: set[str], config: Config) -> bool:
    """Whether an action is legal with `n` animals of the species `in_line` in line."""
    if act.card == "chameleon":
        if not act.effect:  # "chameleon with nothing to copy: placed without effect"
            return in_line <= {"chameleon"} and not config.earlier_rules
        if act.effect not in in_line:  # "the action of another species in line"
            return False
    if act.effect == "kangaroo":
        # "hops over the last one or two animals, by choice (0 only on an empty line)"
        return act.choice == 0 if n == 0 else 1 <= act.choice <= min(n, 2)
    if act.effect == "parrot":  # "sends one other animal, own allowed, to THAT'S IT"
        return act.choice < n
    if act.card == "parrot":  # "Parrot on an empty line: placed without effect"
        return n == 0 and not config.earlier_rules
    return True


def play(state: State, number: int, config: Config) -> State:
    """The state after one whole turn."""
    out = state.copy()
    for _ in stages(out, number, config):
        pass
    return out


def stages(out: State, number: int, config: Config) -> Iterator[tuple[str, Card]]:
    """Play one turn on `out` itself, stage by stage; a stage is its name and the animal that acts.

    The names are "placed", "acts", "recurs" (for each recurring animal) and "enters" (the gate opens).
    """
    act, player = ACTS[number], out.turn
    card = (player, act.card)
    turn = Turn(out, card, config)
    # "(1) put one hand card at the back of the queue;"
    out.hands[player].remove(act.card)
    out.line.append(card)
    yield "placed", card
    # "(2) its action;"
    turn.act(act.effect, act.choice)
    yield "acts", card
    # "(3) recurring actions of the *other* recurring animals, from the gate to the back;"
    for recurring in turn.recur_by_place() if config.earlier_rules else turn.recur():
        yield "recurs", recurring
    # "(4) if exactly five stand in line, the first two enter the bar, the last goes to THAT'S IT, the middle
    # two stay;"
    if len(out.line) == 5:
        for owner, name in out.line[:2]:
            out.bar[owner].add(name)
        turn.out(out.line[4])
        out.line = out.line[2:4]
        yield "enters", card
    # "(5) draw one card if the deck has any."
    if out.decks[player]:
        out.hands[player].add(out.decks[player].pop(0))
    # "turns go round by index"
    out.turn = (player + 1) % out.players
    assert len(out.line) <= PLACES


class Turn:
    """A turn in progress: the state that it changes, and the played card."""

    def __init__(self, state: State, played: Card, config: Config) -> None:
        self.state, self.played, self.config = state, played, config
        self.disguise = ""  # the species that a chameleon copies while it acts

    def species(self, card: Card) -> str:
        return self.disguise if card == self.played and self.disguise else card[1]

    def strength(self, card: Card) -> int:
        return STRENGTH[self.species(card)]

    def out(self, card: Card) -> None:
        """Move a card to THAT'S IT, where it stays."""
        self.state.thats_it[card[0]].add(card[1])

    def expel(self, cards: list[Card]) -> None:
        self.state.line = [card for card in self.state.line if card not in cards]
        for card in cards:
            self.out(card)

    def others(self) -> list[Card]:
        return [card for card in self.state.line if card != self.played]

    def act(self, effect: str, choice: int) -> None:
        """Step 2. A chameleon acts "with that species' strength, for this action only"."""
        self.disguise = effect
        if effect in ("hippo", "crocodile", "giraffe"):
            getattr(self, effect)(self.played)
        elif effect in ("kangaroo", "parrot"):
            getattr(self, effect)(choice)
        elif effect not in ("zebra", ""):  # "a zebra, nothing"
            getattr(self, effect)()
        self.disguise = ""  # "before the recurring phase it is a chameleon of strength 5 again"

    # --- effects of the animals

    def lion(self) -> None:
        """ "another lion in line: this lion is out and nothing else happens. Otherwise every monkey is out
        and the lion goes first" """
        if any(name == "lion" for _, name in self.others()):
            self.expel([self.played])
            return
        self.expel([card for card in self.others() if card[1] == "monkey"])
        self.state.line = [self.played, *self.others()]

    def hippo(self, card: Card) -> None:
        """ "moves forward past every strictly weaker animal; stops behind zebra, lion or hippo" """
        line = self.state.line
        place = line.index(card)
        while place > 0 and line[place - 1][1] not in ("zebra", "lion", "hippo"):
            line[place - 1], line[place] = line[place], line[place - 1]
            place -= 1

    def crocodile(self, card: Card) -> None:
        """ "eats each strictly weaker animal directly ahead, one after another (own ones too); stops at a
        zebra or strength >= 10" """
        while True:
            place = self.state.line.index(card)
            ahead = self.state.line[place - 1] if place else None
            if ahead is None or self.species(ahead) == "zebra" or self.strength(ahead) >= 10:
                return
            self.expel([ahead])

    def snake(self) -> None:
        """ "sorts the line, strongest first; equal strengths keep their order; itself included" """
        self.state.line.sort(key=self.strength, reverse=True)  # a stable sort

    def giraffe(self, card: Card) -> None:
        """ "hops over exactly one directly preceding strictly weaker animal per turn; a zebra does not stop
        it" """
        line = self.state.line
        place = line.index(card)
        if place and self.strength(line[place - 1]) < STRENGTH["giraffe"]:
            line[place - 1], line[place] = line[place], line[place - 1]

    def seal(self) -> None:
        """ "reverses the line, itself included" """
        self.state.line.reverse()

    def monkey(self) -> None:
        """ "alone: nothing. With another monkey in line: hippos and crocodiles are out, the played monkey
        goes first, other monkeys behind it in reversed order, the rest keep theirs" """
        if not any(name == "monkey" for _, name in self.others()):
            return
        self.expel([card for card in self.others() if card[1] in ("hippo", "crocodile")])
        monkeys = [card for card in self.others() if card[1] == "monkey"]
        others = [card for card in self.others() if card[1] != "monkey"]
        self.state.line = [self.played, *reversed(monkeys), *others]

    def kangaroo(self, count: int) -> None:
        """ "hops over the last one or two animals, by choice (0 only on an empty line)" """
        line = self.others()
        line.insert(len(line) - count, self.played)
        self.state.line = line

    def parrot(self, place: int) -> None:
        """ "sends one other animal, own allowed, to THAT'S IT; stays at the back" """
        self.expel([self.state.line[place]])

    def skunk(self) -> None:
        """ "sends all animals of the two strongest species in line (of the only one, if there is one) out;
        skunks neither count nor leave" """
        in_line = {self.species(card) for card in self.state.line} - {"skunk"}
        strongest = sorted(in_line, key=lambda name: STRENGTH[name])[-2:]
        self.expel([card for card in self.state.line if self.species(card) in strongest])

    # --- step 3

    def recur(self) -> Iterator[Card]:
        """ "each surviving recurring animal acts at most once, in the order of the line when the phase starts
        (after the played card's action); the card just played does not recur" """
        for card in list(self.state.line):
            if card[1] in RECURRING and card != self.played and card in self.state.line:
                getattr(self, card[1])(card)
                yield card

    def recur_by_place(self) -> Iterator[Card]:
        """ "the recurring scan goes by place, and when an animal has acted and now stands at t it goes on at
        t + 1 ...; a just-played hippo or crocodile is visited too, a just-played giraffe not" """
        place = 0
        while place < len(self.state.line):
            card = self.state.line[place]
            if card[1] in RECURRING and not (card[1] == "giraffe" and card == self.played):
                getattr(self, card[1])(card)
                place = self.state.line.index(card)
                yield card
            place += 1


def is_over(state: State) -> bool:
    """ "as soon as queue + hands + decks < 5" """
    return len(state.line) + sum(map(len, state.hands)) + sum(map(len, state.decks)) < 5


def score(state: State, player: int, config: Config) -> tuple[int, int]:
    """Score by scoring: "`points` (sum of the bar's points)", "`count` (number of animals, then points)"."""
    points = sum(POINTS[name] for name in state.bar[player])
    return (points, 0) if config.scoring == "points" else (len(state.bar[player]), points)


def outcomes(state: State, config: Config) -> list[float]:
    """1 for the winner, 0.5 for all players who share the best score ("equal is a draw"), else 0."""
    scores = [score(state, player, config) for player in range(state.players)]
    best, outcomes = max(scores), [0.0] * len(scores)
    for player, player_score in enumerate(scores):
        if player_score == best:
            outcomes[player] = 0.5 if scores.count(best) > 1 else 1.0
    return outcomes


def unseen(state: State, player: int) -> set[str]:
    """The cards of a player in hand or deck; the other players always know this set."""
    return state.hands[player] | set(state.decks[player])


assert len(SPECIES) == 12
