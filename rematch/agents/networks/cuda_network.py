"""Networks that the CUDA kernels of agents/networks/cuda compute: their macros, weights and arguments.

The kernels know one shape: two hidden layers that policy and value share, numbers as inputs. `cannot_compute`
says in one line why another network needs the CPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rematch.agents.networks.config import NetworkConfig
from rematch.agents.networks.layout import layout
from rematch.core.arrays import Floats
from rematch.core.spec import Role
from rematch.core.system import cuda

FOLDER = Path(__file__).parent / "cuda"
WIDTHS, MAX_ACTIONS = (64, 128), 64
TILES = (128, 64, 32)  # rows that a block learns from at once; the first that fits into its shared memory
SHARED_MEMORY = 227 * 1024  # bytes that a block can have on the cards that the kernels are written for
NUMBERS = (  # of ppo_gradient.h
    "policy_loss",
    "value_loss",
    "entropy",
    "kl",
    "clip_fraction",
    "magnet_kl",
    "grad_norm_pre_clip",
    "grad_norm_post_clip",
    "updates",
    "decisions",
    "residual_variance",
    "target_variance",
    "adam_steps",
    "failed",
)
ROW_STATS, CHUNK, SELECT_ROWS, MOMENTS = 6, 32, 4096, 3  # of ppo_loss.h, ppo.h and select.h
MOST_BLOCKS = 64  # of a learner in an update; each has at least one group of tiles
GROUP_ROWS = 64  # that a warpgroup computes together
MOST_GROUP_INPUTS, MOST_GROUP_OUTPUTS = 128, 8  # the sums of wider networks do not fit into its registers
SELECT_BYTES = 256  # shared memory of a block of select.h


def c_struct(text: str) -> np.dtype[np.void]:
    """The dtype of a C struct from words name:type; without a type it is a pointer."""
    members = [word.partition(":") for word in text.split()]
    return np.dtype([(name, kind or "u8") for name, _, kind in members], align=True)


# The structs of act.h, act_float.h, advantages.h and ppo.h.
ACT = c_struct("""
    weights learner obs mask slot acting action choice logp value heads inputs first_step key:u8 rows:i4
    seats:i4 all_seats:i4 first_seat:i4 slots:i4 first_row:i4 learner_range:i4""")
FLOAT = c_struct("""
    weights obs mask acting action choice step key:u8 w1:i4 b1:i4 w2:i4 b2:i4 head:i4 head_bias:i4 log_std:i4
    rows:i4 all_seats:i4 seat:i4 greedy:i4""")
ADVANTAGES = c_struct("""
    reward ended acting slot value advantage target counts rows:i4 seats:i4 all_seats:i4 first_seat:i4
    reward_seats:i4 reward_first:i4 steps:i4 gamma:f4 gamma_lambda:f4""")
UPDATE = c_struct("""
    weights first second packed magnet_weights partial chunk_sums tile_stats block_moments block_counts
    numbers new_weights inputs action choice mask logp advantage target value magnet magnet_log_std
    magnet_inv_var records counts index count order scaling barrier updates failed key:u8 active:i4
    iteration:i4 epochs:i4 minibatch:i4 capacity:i4 lr:f4 clip:f4 value_clip:f4 value_weight:f4
    entropy_weight:f4 magnet_weight:f4 magnet_rate:f4 max_norm:f4 target_kl:f4
    log_std_low:f4 log_std_high:f4""")


def cannot_compute(role: Role, config: NetworkConfig) -> str:
    """Why the kernels do not compute this network; empty if they do."""
    if config.in_torch:
        return "the network is computed by PyTorch"
    if len(config.hidden) != 2 or any(width not in WIDTHS for width in config.hidden):
        widths = ",".join(map(str, config.hidden))
        return f"network.hidden is {widths}; expected two layers of 64 or 128 units"
    if not config.one_tower or config.table:
        return "policy and value have separate layers; expected network.shared true, network.table false"
    if any(role.categories):
        return f"{role.name} observes categorical columns"
    if role.actions.size > MAX_ACTIONS:
        return f"{role.name} has {role.actions.size} actions; expected at most {MAX_ACTIONS}"
    needed = update_bytes(role, config, TILES[-1])
    if needed > SHARED_MEMORY:
        return (
            f"a tile of {role.name}'s network needs {needed:,} bytes of shared memory; expected at most "
            f"{SHARED_MEMORY:,}: fewer observation columns, network.fourier or network.hidden"
        )
    return ""


def in_warpgroups(role: Role, config: NetworkConfig) -> bool:
    """Whether four warps multiply together (warpgroup.h): on Hopper, for networks of the recipes' size."""
    return (
        cuda.has_warpgroups()
        and tuple(config.hidden) == (64, 64)
        and role.actions.size < MOST_GROUP_OUTPUTS
        and _padded_inputs(role, config, 1) <= MOST_GROUP_INPUTS
    )


def inputs(role: Role, config: NetworkConfig) -> int:
    """Numbers that the first layer reads: observations and their octaves, up to a multiple of 32; for
    warpgroups with a one behind them."""
    return _padded_inputs(role, config, int(in_warpgroups(role, config)))


def _padded_inputs(role: Role, config: NetworkConfig, more: int) -> int:
    return _up(role.size * (1 + 2 * config.fourier) + more, 32)


def weight_bytes(role: Role, config: NetworkConfig) -> int:
    """The size of `Weights` of network.h."""
    first, second = config.hidden
    outputs = role.actions.size + 1
    spare = 0 if in_warpgroups(role, config) else 8
    halves = first * (inputs(role, config) + spare) + second * (first + spare)
    halves += _up(outputs, 16) * (second + spare)
    return 2 * halves + 4 * (first + second + _up(outputs, 4) + 3 * _up(role.actions.size, 4))


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def act_bytes(role: Role, config: NetworkConfig) -> int:
    """Shared memory of a block of `act`: `ActMemory` of act.h."""
    rows = 128 * (2 * (inputs(role, config) + 8) + 4 * (role.size + role.actions.size + 1))
    return weight_bytes(role, config) + rows + 4 * (2048 + 8) + 64


def float_bytes(role: Role, config: NetworkConfig) -> int:
    """Shared memory of a block of `act_float`: `FloatMemory` of act_float.h."""
    features, actions = role.size * (1 + 2 * config.fourier), role.actions.size
    first, second = config.hidden
    weights = first * (features | 1) + second * (first | 1) + actions * (second | 1)
    return 4 * (weights + 32 * (features + first + second + actions))


def record_size(role: Role) -> int:
    """Numbers of a record: what the loss of a row needs (ppo_gradient.h)."""
    actions = role.actions.size
    return _up(4 + (1 if role.actions.kind == "discrete" else actions) + actions, 4)


def update_bytes(role: Role, config: NetworkConfig, tile: int) -> int:
    """Shared memory of a block of `update`: `UpdateMemory` of ppo.h."""
    actions, outputs = role.actions.size, role.actions.size + 1
    if in_warpgroups(role, config):
        return weight_bytes(role, config) + 2 * _group_bytes(role, config) + _rest_bytes(role)
    halves = 2 * (inputs(role, config) + 8) + 2 * sum(width + 8 for width in config.hidden)
    halves += _up(outputs, 16) + 8
    numbers = outputs + 2 * record_size(role) + 3  # outputs, records of two tiles, rows of three
    strips = tile // 16 * (ROW_STATS + actions)  # statistics of each strip
    return weight_bytes(role, config) + tile * (2 * halves + 4 * numbers) + 4 * strips + _rest_bytes(role)


def _rest_bytes(role: Role) -> int:
    return UPDATE.itemsize + 4 * (2 + 2 * role.actions.size) + 8 * 24 + 64


def _group_bytes(role: Role, config: NetworkConfig) -> int:
    """What a warpgroup has of its tiles: `GroupTile` of ppo_groups.h."""
    rows, outputs = GROUP_ROWS, role.actions.size + 1
    values = ROW_STATS + role.actions.size + outputs
    halves = 2 * inputs(role, config) * (rows + 1) + rows * (2 * sum(config.hidden) + 8)
    numbers = rows * (outputs + (values | 1) + 2 * record_size(role) + 3) + 4 * values
    return 2 * halves + 4 * numbers


def tile_rows(role: Role, config: NetworkConfig) -> int:
    """Rows of a tile of `update`; 0 if no tile fits."""
    if in_warpgroups(role, config):
        return GROUP_ROWS
    fitting = [rows for rows in TILES if update_bytes(role, config, rows) <= SHARED_MEMORY]
    return fitting[0] if fitting else 0


def groups(role: Role, config: NetworkConfig) -> int:
    """Groups of tiles whose sums an update adds: GROUPS of ppo_tiles.h and ppo_groups.h."""
    return 128 if in_warpgroups(role, config) else 64


def macros(role: Role, config: NetworkConfig) -> dict[str, int]:
    """The macros that agents/networks/cuda/program.cu is compiled with."""
    return {
        "TILE": tile_rows(role, config),
        "OBS": role.size,
        "FOURIER": config.fourier,
        "WIDTH1": config.hidden[0],
        "WIDTH2": config.hidden[1],
        "ACTIONS": role.actions.size,
        "DISCRETE": int(role.actions.kind == "discrete"),
        "RELU": int(config.activation == "relu"),
        "WARPGROUPS": int(in_warpgroups(role, config)),
    }


def in_tiles(matrix: NDArray[np.int64], warpgroups: bool) -> NDArray[np.int64]:
    """A matrix in the order of `MatrixPlace` (network.h): [warp][tile][lane][4]."""
    rows, columns = matrix.shape
    if warpgroups:  # row = warp, part (8 rows), eighth;  column = tile, pair, number
        blocks = matrix.reshape(rows // 16, 2, 8, columns // 8, 4, 2)
        return blocks.transpose(0, 3, 2, 4, 1, 5).reshape(-1)
    # row = half, tile, part (8 rows), eighth;  column = side, tile, pair, number
    split = matrix.reshape(2, rows // 32, 2, 8, 4, columns // 32, 4, 2)
    return split.transpose(4, 0, 1, 5, 3, 6, 2, 7).reshape(-1)


class WeightOrder:
    """The order of a network's weights on the GPU: padded, the value head as the last row of the head."""

    def __init__(self, role: Role, config: NetworkConfig) -> None:
        entries = {name: (shape, at) for name, shape, at in layout(role, config)}
        padded = inputs(role, config)

        def rows(name: str) -> NDArray[np.int64]:
            shape, at = entries[name]
            return at + np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)

        first = rows("trunk.0.weight")
        filled = np.full((first.shape[0], padded), -1, np.int64)
        filled[:, : first.shape[1]] = first
        grouped = in_warpgroups(role, config)
        parts = [in_tiles(filled, grouped), in_tiles(rows("trunk.1.weight"), grouped),
                 rows("trunk.0.bias"), rows("trunk.1.bias"),
                 rows("policy.head.weight"), rows("value.head.weight"),
                 rows("policy.head.bias"), rows("value.head.bias")]  # fmt: skip
        self.log_std = sum(part.size for part in parts)  # offset of log_std
        if "policy.log_std" in entries:
            parts.append(rows("policy.log_std"))
        parts.append(np.full(-sum(part.size for part in parts) % 4, -1, np.int64))
        self.source = np.concatenate(
            [part.reshape(-1) for part in parts]
        )  # index of each flat weight; -1: padding
        self.size = len(self.source)
        self._used = np.flatnonzero(self.source >= 0)
        self._flat = self.source[self._used]

    def to_device(self, flat: Floats) -> Floats:
        """Flat weights [P] in the order of the GPU; zeros as padding."""
        out = np.zeros(self.size, np.float32)
        out[self._used] = flat[self._flat]
        return out

    def to_flat(self, ordered: Floats, out: Floats) -> None:
        """The inverse of `to_device`, into `out` [P]."""
        out[self._flat] = ordered[self._used]
