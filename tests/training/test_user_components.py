"""Components of one's own: in flags, help, check, checkpoint, metrics and report; exact resume; never
imported unless allowed."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.single_seat_worlds import SIZES
from support.trainers import resume_run, start_run
from support.user_network import NETWORK

import rematch
from rematch.agents.learners import dqn
from rematch.cli import main
from rematch.core import config as settings
from rematch.core.errors import ConfigError
from rematch.core.system import user_code
from rematch.rehearsal.compare import differences
from rematch.storage.run_folder import Run
from rematch.training.config import config_class, with_user_code
from rematch.training.recipes import configure, stored_config

EXAMPLES = Path(rematch.__file__).parents[1] / "examples"
TERM = f"{EXAMPLES / 'novelty_by_hash.py'}:HashNovelty"
STOP = f"{EXAMPLES / 'stop_at_entropy.py'}:StopAtEntropy"
NET = f"{EXAMPLES / 'wide_network.py'}:Net"
PPO: dict[str, Any] = {
    "games": 8, "steps": 8, "total_steps": 8 * 8 * 4, "save_every": 1, "evaluation.games": 2,
    "evaluation.opponents": ["random"], "world.max_steps": 20, "world.prep_steps": 0, "network.hidden": [8],
}  # fmt: skip
SMALL = {key: value for key, value in PPO.items() if key != "network.hidden"}
DQN: dict[str, Any] = {
    "learner": "dqn", "games": 4, "steps": 16, "total_steps": 4 * 16 * 6, "save_every": 1, "dqn.sequence": 8,
    "dqn.burn_in": 2, "dqn.batch": 4, "dqn.replay_size": 4 * 120, "dqn.warmup": 64, "evaluation.games": 2,
    "evaluation.every": 100,
}  # fmt: skip
RUNS = {"ppo": ("quick", PPO), "dqn": ("gym", DQN)}
OWN = {"reward_terms": [TERM], "hash_novelty.weight": 0.05}


@pytest.fixture(autouse=True)
def forget_what_was_allowed() -> Any:
    with user_code.nothing_allowed():
        yield


def own(learner: str, **changes: Any) -> Any:
    recipe, small = RUNS[learner]
    return configure(recipe, changes=small | OWN | changes)


@pytest.mark.parametrize("learner", RUNS)
def test_user_reward_term_trains_is_stored_and_resumes_exactly(
    learner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dqn, "SIZES", SIZES)
    config = own(learner)
    whole = start_run(tmp_path / "whole", config)
    rows = whole.rows
    assert any(key.endswith("/hash_novelty_cells") for key in rows[-1])
    with Run.open(tmp_path / "whole", write=False) as run:
        checkpoint = run.load()
    assert checkpoint is not None
    (role,) = list(checkpoint.parts["hash_novelty"])[-1:]
    assert checkpoint.parts["hash_novelty"][role]["table"].sum() > 0
    start_run(tmp_path / "cut", config, lambda trainer: trainer.clock.iteration >= 2)
    resume_run(tmp_path / "cut")
    assert differences(tmp_path / "whole", tmp_path / "cut") == []
    without = start_run(tmp_path / "without", own(learner, **{"hash_novelty.weight": 0.5}))
    learners = [recorder.trainer.agents.learners for recorder in (whole, without)]
    assert any(not np.array_equal(learners[0][r].policy.weights, learners[1][r].policy.weights)
               for r in learners[0]), "its weight changes what is learned"


@pytest.mark.slow
def test_user_component_appears_in_help_check_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [word for key, value in (PPO | OWN).items()
             for word in (f"--{key}", ",".join(map(str, value)) if isinstance(value, list) else str(value))]
    with contextlib.chdir(tmp_path):
        assert main.main(["check", "quick", *flags]) == 0
        assert "hash_novelty" in capsys.readouterr().out
        assert main.main(["train", "quick", *flags, "--name", "mine"]) == 0
        capsys.readouterr()
        row = json.loads((tmp_path / "runs/mine/metrics.jsonl").read_text().splitlines()[-1])
        assert any("hash_novelty" in key for key in row)
        page = (tmp_path / "runs/mine/report.html").read_text()
        assert "Components of your own" in page and "hash_novelty_cells over steps of all games" in page
    keys = {key for key, _, _ in settings.leaves(own("ppo"))}
    assert {"hash_novelty.weight", "hash_novelty.bins"} <= keys


def test_user_component_ends_the_run(tmp_path: Path) -> None:
    changes = {"components": [STOP], "stop_at_entropy.entropy": 100.0, "stop_at_entropy.patience": 2}
    result = start_run(tmp_path / "run", configure("quick", changes=PPO | changes))
    assert [row["stop_at_entropy/count"] for row in result.rows] == [1.0, 2.0]
    logged = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert logged == result.rows, "a value that after_update sets stands in the row of its own iteration"
    assert result.trainer.clock.end_reason == "a component requested the end"


@pytest.mark.slow
def test_check_finds_code_named_by_a_relative_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text((EXAMPLES / "stop_at_entropy.py").read_text())
    flags = [word for key, value in PPO.items()
             for word in (f"--{key}", ",".join(map(str, value)) if isinstance(value, list) else str(value))]
    own_flags = ["--components", "mine.py:StopAtEntropy", "--stop_at_entropy.entropy", "0.5"]
    with contextlib.chdir(tmp_path):
        assert main.main(["check", "quick", *flags, *own_flags]) == 0
    assert "stop_at_entropy" in capsys.readouterr().out


def test_no_file_of_the_package_names_the_user_component() -> None:
    package = Path(rematch.__file__).parent
    assert not [path for path in package.rglob("*.py") if "hash_novelty" in path.read_text()]


def test_user_network_trains_and_resumes_exactly(tmp_path: Path) -> None:
    config = configure("quick", changes=SMALL | {"network.module": NET})
    start_run(tmp_path / "whole", config)
    start_run(tmp_path / "cut", config, lambda trainer: trainer.clock.iteration >= 2)
    resume_run(tmp_path / "cut")
    assert differences(tmp_path / "whole", tmp_path / "cut") == []


@pytest.mark.parametrize("changes", [OWN, {"network.module": NET}])
def test_run_folder_that_names_code_imports_nothing_unless_allowed(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    config = configure("quick", changes=SMALL | changes)
    with Run.create(tmp_path / "run", settings.to_yaml(config)):
        pass
    with user_code.nothing_allowed(), Run.open(tmp_path / "run", write=False) as run:
        with pytest.raises(ConfigError, match="--allow-code"):
            stored_config(run)
        user_code.allow_everything()
        assert stored_config(run) == config


def test_code_that_is_missing_wrong_or_broken_is_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('on purpose')\n")
    for reference, why in {
        "nowhere.py:Term": "no file", f"{broken}:Term": "on purpose", "json:JSONDecoder": "subclass of",
        "not_an_entry_point": "entry point", f"{TERM}s": "nearest: HashNovelty",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=why) as error:
            configure("quick", flags=["--reward_terms", reference])
        assert "\n" not in str(error.value)


def test_two_components_of_one_name_are_refused() -> None:
    user_code.allow([TERM])
    with pytest.raises(ConfigError, match="hash_novelty"):
        config_class(with_user_code([], [TERM, TERM]))


FAULTY = """
from dataclasses import dataclass
from rematch.core.component import Component
from rematch.core.config import knob

@dataclass(frozen=True, kw_only=True)
class Config:
    fails_at: int = knob(3, "iteration in which it fails")

class Faulty(Component):
    name = "faulty"
    Config = Config

    def after_update(self, rollout, metrics, clock):
        if clock.iteration == self.config.fails_at:
            raise KeyError("on purpose")
"""


def test_component_that_raises_is_named_and_the_run_can_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    flags = [word for key, value in PPO.items()
             for word in (f"--{key}", ",".join(map(str, value)) if isinstance(value, list) else str(value))]
    with contextlib.chdir(tmp_path):
        code = main.main(["train", "quick", *flags, "--components", "faulty.py:Faulty", "--name", "mine"])
        error = capsys.readouterr().err
        assert code == 2 and error.count("\n") == 1 and "Traceback" not in error
        assert "component faulty failed in after_update" in error and "on purpose" in error
        with Run.open(tmp_path / "runs/mine", write=False) as run:
            checkpoint = run.load()
        assert checkpoint is not None and checkpoint.iteration == 2, "the last whole iteration"
        (tmp_path / "faulty.py").write_text(FAULTY.replace("== self", "== -self"))
        import_again()
        user_code.allow(["faulty.py:Faulty"])
        assert main.main(["resume", "runs/mine"]) == 2
        assert "runs/mine: changed since the checkpoint was saved: faulty.py;" in capsys.readouterr().err
        assert main.main(["resume", "runs/mine", "--other-machine"]) == 0


@pytest.mark.parametrize("edited", ["term.py", "net.py", "stop.py"])
def test_edited_file_is_noticed_by_resume_and_eval(
    edited: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "term.py").write_text((EXAMPLES / "novelty_by_hash.py").read_text())
    (tmp_path / "stop.py").write_text((EXAMPLES / "stop_at_entropy.py").read_text())
    (tmp_path / "net.py").write_text(NETWORK)
    changes = {"reward_terms": ["term.py:HashNovelty"], "hash_novelty.weight": 0.1,
               "network.module": "net.py:Net", "components": ["stop.py:StopAtEntropy"],
               "stop_at_entropy.entropy": -50.0}
    with contextlib.chdir(tmp_path):
        import_again()
        config = configure("quick", changes=SMALL | changes)
        start_run(tmp_path / "runs/mine", config, lambda trainer: trainer.clock.iteration >= 2)
        (tmp_path / edited).write_text((tmp_path / edited).read_text() + "\n# edited\n")
        resume_run(tmp_path / "runs/mine", lambda trainer: trainer.clock.iteration >= 3)  # still imported
        import_again()
        user_code.allow_everything()
        with pytest.warns(UserWarning, match=f"{edited} has changed since the checkpoint was saved"):
            rematch.evaluate("mine", games=2, against=["random"])
        assert main.main(["resume", "mine"]) == 2
        assert f"changed since the checkpoint was saved: {edited};" in capsys.readouterr().err
        assert main.main(["resume", "mine", "--other-machine"]) == 0


def import_again() -> None:
    """Forget the modules of the user's files, as a new process does."""
    for name in [name for name in sys.modules if name.startswith("rematch_user_")]:
        del sys.modules[name]
    config_class.cache_clear()
