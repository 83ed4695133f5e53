"""Writers of others' log formats: TensorBoard event files, offline runs of Weights & Biases."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from rematch.core.errors import ConfigError, NotInstalled

SUFFIX = ".rematch"  # of the event files that this module writes


class LogWriter(Protocol):
    """Receives the numbers and texts of one run, in the order of their steps."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None: ...

    def text(self, step: int, name: str, text: str) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> str:
        """End the log; the command that shows it."""


def require(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise NotInstalled(f"--to {module}: {module}", module)


class TensorBoardWriter:
    """One event file in `folder`; event files of an earlier export are replaced, no others are touched."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        require("tensorboard")
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.event, self.summary, self.tensor = event_pb2.Event, summary_pb2, tensor_pb2
        self.string_type = types_pb2.DT_STRING
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.glob(f"events.out.tfevents.*{SUFFIX}"):
            old.unlink()
        self.writer = EventFileWriter(str(self.folder), flush_secs=10, filename_suffix=SUFFIX)
        lines = [f"    {key}: {value}" for key, value in settings.items()]
        self.text(0, "settings", "\n".join(lines))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        entries = [self.summary.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step, entries)

    def text(self, step: int, name: str, text: str) -> None:
        plugin = self.summary.SummaryMetadata.PluginData(plugin_name="text")
        tensor = self.tensor.TensorProto(dtype=self.string_type, string_val=[text.encode()])
        metadata = self.summary.SummaryMetadata(plugin_data=plugin)
        self._add(step, [self.summary.Summary.Value(tag=name, metadata=metadata, tensor=tensor)])

    def _add(self, step: int, entries: list[Any]) -> None:
        summary = self.summary.Summary(value=entries)
        self.writer.add_event(self.event(wall_time=time.time(), step=step, summary=summary))

    def flush(self) -> None:
        self.writer.flush()

    def close(self) -> str:
        self.writer.close()
        return f"tensorboard --logdir {self.folder.parent}"


class WandbWriter:
    """An offline run of Weights & Biases: nothing is sent; `wandb sync` uploads it."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        require("wandb")
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        # No code, host name, git or console output is recorded.
        quiet = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True, host="",
                               save_code=False, disable_job_creation=True, x_disable_meta=True,
                               x_disable_stats=True, x_disable_machine_info=True)
        self.run = wandb.init(mode="offline", project="rematch", name=name, dir=str(folder),
                              config=dict(settings), settings=quiet)
        self.teardown = wandb.teardown
        self.run.define_metric("*", step_metric="step")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log({**values, "step": step})

    def text(self, step: int, name: str, text: str) -> None:
        self.run.log({name: text, "step": step})

    def flush(self) -> None:
        """W&B writes by itself."""

    def close(self) -> str:
        folder = Path(self.run.dir).parent
        self.run.finish()
        self.teardown()  # its process writes the rest of the file and ends
        return f"wandb sync {folder}"


WRITERS: Mapping[str, Callable[[Path, str, Mapping[str, Any]], LogWriter]] = {
    "tensorboard": TensorBoardWriter, "wandb": WandbWriter,
}  # fmt: skip
FOLDERS = {"tensorboard": "tensorboard", "wandb": "."}  # to write to by default; W&B adds wandb/ itself


def writer_class(name: str) -> Callable[[Path, str, Mapping[str, Any]], LogWriter]:
    if name not in WRITERS:
        raise ConfigError(f"--to = {name!r}: expected one of {', '.join(WRITERS)}")
    return WRITERS[name]
