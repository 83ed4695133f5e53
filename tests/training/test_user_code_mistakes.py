"""Mistakes in a reward term, a component or a network of the user's own are one line with the cause."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rematch
from rematch.cli import main
from rematch.core.system import user_code
from rematch.training.config import config_class

EXAMPLES = Path(rematch.__file__).parents[1] / "examples"
SMALL = ["--games", "8", "--steps", "8", "--total_steps", "256", "--evaluation.games", "2",
         "--evaluation.opponents", "random", "--world.max_steps", "20", "--world.prep_steps", "0"]
TERM = ["--reward_terms", "mine.py:HashNovelty", "--hash_novelty.weight", "0.01"]
STOP = ["--components", "mine.py:StopAtEntropy", "--stop_at_entropy.entropy", "0.5"]
NET = ["--network", "mine.py:Net"]

# file of examples/, flags, text, replacement, the line that says what is wrong
MISTAKES = {
    "term: weight 0": ("novelty_by_hash.py", TERM[:2], "", "",
                       "reward_terms = mine.py:HashNovelty has no effect: hash_novelty.weight is 0"),
    "component: off": ("stop_at_entropy.py", STOP[:2], "", "",
                       "components = mine.py:StopAtEntropy has no effect: stop_at_entropy.entropy is -100"),
    "term: no name": ("novelty_by_hash.py", TERM, 'name = "hash_novelty"', "pass",
                      "reward_terms = mine.py:HashNovelty: the class has no name; expected name = "),
    "term: name": ("novelty_by_hash.py", TERM, 'name = "hash_novelty"', 'name = "hash novelty"',
                   "mine.py:HashNovelty: name = 'hash novelty': expected an identifier"),
    "term: no Config": ("novelty_by_hash.py", TERM, "    Config = Config\n", "",
                        "mine.py:HashNovelty: the class has no Config; expected a frozen dataclass"),
    "term: Config": ("novelty_by_hash.py", TERM[:2], "@dataclass(frozen=True, kw_only=True)\n", "",
                     "mine.py:HashNovelty: Config is not a frozen dataclass"),
    "term: no weight": ("novelty_by_hash.py", ["--reward_terms", "mine.py:HashNovelty"],
                        'weight: float = knob(0.0, "weight of the reward term; 0: off", low=0)', "pass",
                        r"mine.py:HashNovelty: Config has no field weight"),
    "term: no scorer": ("novelty_by_hash.py", TERM, "def make_scorer", "def scorer",
                        "class HashNovelty has no method make_scorer"),
    "term: scorer method": ("novelty_by_hash.py", TERM, "def copy_from", "def copy",
                            "make_scorer of hash_novelty returned a Counts without copy_from"),
    "term: shape": ("novelty_by_hash.py", TERM, "1.0 / np.sqrt(self.table[index])",
                    "1.0 / np.sqrt(self.table[index])[0]",
                    r"hash_novelty: score returned an array \[8, 1\], expected \[8, 8, 1\]"),
    "term: None": ("novelty_by_hash.py", TERM, "return 1.0 / np.sqrt(self.table[index])", "pass",
                   "hash_novelty: score returned NoneType, expected an array"),
    "term: nan": ("novelty_by_hash.py", TERM, "1.0 / np.sqrt(self.table[index])",
                  "0.0 * self.table[index] / 0.0 if self else 0",
                  "hash_novelty: score returned a value that is not finite"),
    "term: raises": ("novelty_by_hash.py", TERM, "np.add.at(self.table, index, 1)", "self.tables[0] += 1",
                     r"component hash_novelty failed in after_rollout: AttributeError: .*"
                     r"\(mine.py line 35, in score\)"),
    "term: column": ("novelty_by_hash.py", TERM, 'host("obs")', 'host("observation")',
                     r"there is no column 'observation': expected one of acted, action, .*\(mine.py line 33"),
    "term: state": ("novelty_by_hash.py", TERM, 'return {"table": self.table}', "return self.table",
                    "Counts of hash_novelty: state_dict returned ndarray, expected a dict of arrays"),
    "term: metric": ("novelty_by_hash.py", TERM, "float((self.scorers[role].table > 0).sum())", "'many'",
                     "component hash_novelty: the metric pursuer/hash_novelty_cells is 'many', expected a "
                     "number"),
    "term: type of a setting": ("novelty_by_hash.py", TERM, "bins: int", "bins: list[int]",
                                r"the type of Config.bins is list\[int\]; expected int, float, bool, str or"),
    "term: unknown type": ("novelty_by_hash.py", TERM, "bins: int", "bins: Int",
                           "a type of Config is not known: name 'Int' is not defined"),
    "term: no default": ("novelty_by_hash.py", TERM, 'float = knob(0.0, "weight of the reward term; 0: off", '
                         "low=0)", "float", "Config.weight has no default; expected weight = knob"),
    "component: state": ("stop_at_entropy.py", STOP, 'return {"count": self.count}', "return self.count",
                         "component stop_at_entropy: state_dict returned int, expected a dict"),
    "component: base class": ("stop_at_entropy.py", STOP, "StopAtEntropy(Component)", "StopAtEntropy",
                              "expected a subclass of rematch.core.component.Component"),
    "component: constructor": ("stop_at_entropy.py", STOP, "self.count = 0 ", "self.count = self.nothing ",
                               r"component stop_at_entropy cannot be built: AttributeError: .*"
                               r"\(mine.py line 31, in __init__\)"),
    "component: request": ("stop_at_entropy.py", STOP, "else []", 'else ["stop"]',
                           "stop_at_entropy failed in requests: ValueError: 'stop' is not a valid Request"),
    "term: ends Python": ("novelty_by_hash.py", TERM, "from dataclasses", "quit()\nfrom dataclasses",
                          r"HashNovelty: cannot be imported: SystemExit: None \(mine.py line 8, in <module>"),
    "component: ends Python": ("stop_at_entropy.py", STOP, 'return {"count": float', "quit() or {1: float",
                               r"stop_at_entropy failed in metrics: SystemExit: None \(mine.py line 4\d, in"),
    "component: check": ("stop_at_entropy.py", STOP, "    def after_update", "    @classmethod\n"
                         "    def check(cls, config, setup): cls.nothing\n\n    def after_update",
                         r"component stop_at_entropy failed in check: AttributeError: .* in check\)"),
    "component: memory": ("stop_at_entropy.py", STOP, "    def after_update", "    @classmethod\n"
                          "    def memory_bytes(cls, config, setup): cls.nothing\n\n    def after_update",
                          r"component stop_at_entropy failed in memory_bytes: AttributeError: .*\(mine.py "),
    "component: connect": ("stop_at_entropy.py", STOP, "    def after_update",
                           "    def connect(self): self.nothing\n\n    def after_update",
                           r"component stop_at_entropy failed in connect: AttributeError: .*, in connect\)"),
    "component: type of the state": ("stop_at_entropy.py", STOP, '"count": self.count}', '"count": object()}',
                                     "state/stop_at_entropy/count is of type object; expected arrays"),
    "network: constructor": ("wide_network.py", NET, "action_size: int)", "action_size: int, width)",
                             r"network.module = mine.py:Net: .*TypeError: .* 'width'"),
    "network: forward": ("wide_network.py", NET, ", self.value(features)[:, 0]", "",
                         "mine.py:Net: forward returned a Tensor, expected logits .* and values"),
    "network: logits": ("wide_network.py", NET, "Linear(128, action_size)", "Linear(128, 7)",
                        r"mine.py:Net: forward returned logits \[2, 7\], expected \[2, 2\]"),
    "network: values": ("wide_network.py", NET, "self.value(features)[:, 0]", "self.policy(features)",
                        r"network.module = mine.py:Net: forward returned values \[2, 2\], expected \[2\]"),
    "network: input": ("wide_network.py", NET, "Linear(observation_size, 128)", "Linear(5, 128)",
                       r"mine.py:Net: RuntimeError: mat1 .* \(mine.py line 24, in forward\)"),
    "network: buffers": ("wide_network.py", NET, "torch.nn.LayerNorm(128)", "torch.nn.BatchNorm1d(128)",
                         "it has buffers"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with contextlib.chdir(tmp_path), user_code.nothing_allowed():
        yield tmp_path
    for name in [name for name in sys.modules if name.startswith("rematch_user_mine_")]:
        del sys.modules[name]
    config_class.cache_clear()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_one_line(mistake: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example, flags, old, new, line = MISTAKES[mistake]
    text = (EXAMPLES / example).read_text()
    assert old in text
    (folder / "mine.py").write_text(text.replace(old, new, 1))
    assert main.main(["train", "quick", *SMALL, *flags, "--name", "mine"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and re.search(line, error), error


def test_help_of_a_term_needs_no_weight(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user reads the help to learn which settings the term has."""
    (folder / "mine.py").write_text((EXAMPLES / "novelty_by_hash.py").read_text())
    assert main.main(["train", "quick", *TERM[:2], "--help", "hash_novelty"]) == 0
    assert "--hash_novelty.weight" in capsys.readouterr().out
    assert main.main(["train", "quick", *TERM[:2]]) == 2
    assert "hash_novelty.weight is 0; --help hash_novelty explains its settings" in capsys.readouterr().err


def test_state_that_cannot_be_loaded_names_file_and_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (EXAMPLES / "novelty_by_hash.py").read_text()
    (folder / "mine.py").write_text(text.replace('tree["table"]', 'tree["tables"]'))
    assert main.main(["train", "quick", *SMALL, *TERM, "--name", "mine", "--max-minutes", "0.0001"]) == 0
    user_code.allow_everything()
    assert main.main(["resume", "mine"]) == 2
    error = capsys.readouterr().err
    assert "rematch: component hash_novelty failed in load_state_dict: KeyError: 'tables'" in error
    assert "(mine.py line 42, in load_state_dict)" in error and error.count("\n") == 1


@pytest.mark.parametrize("hook", ["shrink", "evidence"])
def test_check_names_component_and_hook(hook: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (EXAMPLES / "stop_at_entropy.py").read_text()
    first = {"shrink": "    @classmethod\n    def shrink(cls, config, small): cls.nothing\n\n",
             "evidence": ""}[hook]  # fmt: skip
    text = text.replace("{len(record.metrics)}", "{self.nothing}") if hook == "evidence" else text
    (folder / "mine.py").write_text(text.replace("    def after_update", f"{first}    def after_update"))
    assert main.main(["check", "quick", *SMALL, *STOP]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"component stop_at_entropy failed in {hook}: AttributeError" in error


def test_run_is_found_from_another_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.py").write_text((EXAMPLES / "novelty_by_hash.py").read_text())
    assert main.main(["train", "quick", *SMALL, *TERM, "--name", "mine"]) == 0
    (folder / "elsewhere").mkdir()
    user_code.allow_everything()
    with contextlib.chdir(folder / "elsewhere"):
        assert main.main(["resume", str(folder / "runs/mine")]) == 0
    assert "is complete" in capsys.readouterr().out


def test_weight_zero_that_was_typed_is_accepted(folder: Path) -> None:
    """A sweep compares a term with its absence: --grid hash_novelty.weight=0,0.1."""
    (folder / "mine.py").write_text((EXAMPLES / "novelty_by_hash.py").read_text())
    assert main.main(["train", "quick", *SMALL, *TERM[:3], "0", "--name", "mine"]) == 0
