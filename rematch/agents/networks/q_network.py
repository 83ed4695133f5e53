"""The network of a long game: CNN -> GRU (short) -> LSTM (mid) -> SSM (long) -> dueling Q head, in series.

The head reads the SSM's output with those of GRU and LSTM beside it; LayerNorm follows every layer. Each
memory layer can be left out. The state that is carried on is one row of numbers per game, [B, M]: the layers'
memories, then the last two pictures, for the eye looks at three at once. All zero is an episode's beginning.

Weights are those of one flat vector (agents/policy.py): `Hierarchy.bind` makes the parameters views of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from rematch.agents.networks.rnn_cells import Gru, Lstm

STACK = 3  # pictures that the eye sees at once
SLOWEST, FASTEST = 0.9999, 0.9  # decays of the SSM


class Shape(Protocol):
    """What of the learner's settings the network is built by."""

    @property
    def channels(self) -> tuple[int, int, int]: ...
    @property
    def width(self) -> int: ...
    @property
    def gru(self) -> bool: ...
    @property
    def lstm(self) -> bool: ...
    @property
    def ssm(self) -> str: ...


def scan(decay: Tensor, drive: Tensor) -> Tensor:
    """x[t] = decay[t] x[t - 1] + drive[t] along dim 1, x[-1] being 0, in log2 T rounds (Hillis, Steele 1986).

    Both are [B, T, H], real or complex. After the round of distance d each entry covers 2 d steps.
    """
    d = 1
    while d < drive.shape[1]:
        drive = torch.cat([drive[:, :d], drive[:, d:] + decay[:, d:] * drive[:, :-d]], 1)
        decay = torch.cat([decay[:, :d], decay[:, d:] * decay[:, :-d]], 1)
        d *= 2
    return drive


class Eye(nn.Module):
    """[n, STACK, H, W] -> [n, features]. At 72 x 80 the first layer steps by one tile of 4 pixels."""

    def __init__(self, shape: Sequence[int], channels: Sequence[int]) -> None:
        super().__init__()
        first, second, third = channels
        wide = [(STACK, first, 8, 4), (first, second, 4, 2), (second, third, 3, 1)]
        small = [(STACK, first, 3, 1), (first, second, 3, 2), (second, third, 3, 1)]
        layers, edge = (wide, 0) if min(shape) >= 36 else (small, 1)
        self.convs = nn.ModuleList(nn.Conv2d(*layer, padding=edge) for layer in layers)
        self.norms = nn.ModuleList(nn.GroupNorm(1, layer[1]) for layer in layers)  # LayerNorm of a picture
        with torch.no_grad():
            self.features = self(torch.zeros(1, STACK, *shape)).shape[1]

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        for conv, norm in zip(self.convs, self.norms):
            x = functional.relu(norm(conv(x)))
        return x.flatten(1)


class Ssm(nn.Module):
    """A diagonal linear recurrence x' = a x + sqrt(1 - |a|^2) W u (Orvieto et al. 2023), a in (0, 1).

    `fading` is log(-log |a|), so that a stays inside; with `turning` the decays are complex. A reset is a
    transition of 0 at that step. The square root keeps x as large as its input, whatever the decay.
    """

    def __init__(self, inputs: int, width: int, turning: bool) -> None:
        super().__init__()
        self.width, self.turning = width, turning
        self.memory = 2 * width if turning else width
        self.look = nn.Linear(inputs, self.memory, bias=False)
        self.fading = nn.Parameter(torch.zeros(width))
        self.angle = nn.Parameter(torch.zeros(width)) if turning else None
        self.tell = nn.Linear(self.memory, width)
        self.through = nn.Linear(inputs, width)

    def decays(self) -> tuple[Tensor, Tensor]:
        """a [H], real or complex, and the length of the input's share."""
        size = torch.exp(-torch.exp(self.fading))
        share = torch.sqrt(1 - size * size)
        return (size if self.angle is None else torch.polar(size, self.angle)), share

    def forward(self, x: Tensor, memory: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        decay, share = self.decays()
        drive, state = self.look(x), memory
        if self.turning:
            drive, state = (torch.complex(*part.chunk(2, -1)) for part in (drive, memory))
        drive = drive * share
        step = decay * keep
        if x.shape[1] == 1:
            states = (step[:, 0] * state + drive[:, 0])[:, None]  # acting: one multiply-add
        else:
            drive = torch.cat([drive[:, :1] + step[:, :1] * state[:, None], drive[:, 1:]], 1)
            states = scan(step, drive)
        told = torch.cat([states.real, states.imag], -1) if self.turning else states
        return self.tell(told) + self.through(x), told[:, -1]


class Hierarchy(nn.Module):
    """See the head of this file. `shape` [H, W] of the picture or (), `side` of the visited mask or 0."""

    def __init__(
        self, shape: Sequence[int], side: int, categories: Sequence[int], actions: int, config: Shape
    ) -> None:
        super().__init__()
        channels, width = config.channels, config.width
        self.shape, self.side, self.actions = tuple(shape), side, actions
        self.pixels = int(torch.Size(shape).numel()) if shape else 0
        self.eye = Eye(shape, channels) if shape else None
        self.map = nn.Conv2d(1, 8, 4, 4) if side else None
        spots = 8 * (side // 4) ** 2 if side else 0
        # Columns that name things are looked up: the product with a one-hot vector (spec.Field.choices).
        self.named = torch.tensor([i for i, n in enumerate(categories) if n], dtype=torch.long)
        self.plain = torch.tensor([i for i, n in enumerate(categories) if not n], dtype=torch.long)
        starts, total = [], 0
        for n in categories:
            if n:
                starts.append(total)
            total += n
        self.starts = torch.tensor(starts, dtype=torch.long)  # of each of them in the table
        self.table = nn.Embedding(total, width) if total else None
        # Each sense has weights of its own size: a few numbers would drown among a thousand spots of a map.
        seen = (self.eye.features if self.eye else 0) + spots
        self.mix = nn.Linear(seen, width, bias=False) if seen else None
        self.count = nn.Linear(len(self.plain), width)
        self.mixed = nn.LayerNorm(width)
        layers: dict[str, nn.Module] = {}
        if config.gru:
            layers["gru"] = Gru(width, width)
        if config.lstm:
            layers["lstm"] = Lstm(width, width)
        if config.ssm != "off":
            layers["ssm"] = Ssm(width, width, config.ssm == "complex")
        self.layers = nn.ModuleDict(layers)
        self.norms = nn.ModuleDict({name: nn.LayerNorm(width) for name in layers})
        self.first = nn.Linear(width * max(1, len(layers)), width)
        self.firsts = nn.LayerNorm(width)
        self.value, self.advantage = nn.Linear(width, 1), nn.Linear(width, actions)
        self.memories = [int(layer.memory) for layer in self.layers.values()]  # type: ignore[arg-type]
        self.memory = sum(self.memories)  # numbers that the layers carry on
        self.carried = self.memory + (STACK - 1) * self.pixels  # and the pictures

    def bind(self, flat: Tensor) -> None:
        """Make all parameters views of `flat` [P], in the order of `named_parameters`."""
        at = 0
        columns = self.named, self.plain, self.starts
        self.named, self.plain, self.starts = (x.to(flat.device) for x in columns)
        for parameter in self.parameters():
            parameter.data = flat[at : at + parameter.numel()].view(parameter.shape)
            at += parameter.numel()

    def stacked(self, frames: Tensor, past: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """Each picture with the two before it in its episode: [B, T, STACK, H, W]; and what is past then."""
        older, last = past.unbind(1)
        one = torch.cat([last[:, None], frames[:, :-1]], 1) * keep[..., None]
        two = torch.cat([older[:, None], one[:, :-1]], 1) * keep[..., None]
        stack = torch.stack([frames, one, two], -1).permute(0, 1, 4, 2, 3)  # channels last in memory
        return stack, torch.stack([one[:, -1], frames[:, -1]], 1)

    def forward(
        self, frames: Tensor | None, structured: tuple[Tensor, Tensor | None], state: Tensor,
        done_mask: Tensor,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:  # fmt: skip
        """frames [B, T, H, W] in [0, 1]; structured: numbers [B, T, S], visited [B, T, K, K]; state [B, M].

        A learner that has the pictures before may stack them: frames [B, T, STACK, H, W], newest first.
        done_mask [B, T] is 1 where an episode begins: nothing is carried into that step. Returns q [B, T, A],
        the state after the last step, and what the layers said.
        """
        numbers, visited = structured
        b, t = done_mask.shape
        keep = (1 - done_mask)[..., None]
        parts: list[Tensor] = []
        kept: list[Tensor] = []
        if self.eye is not None:
            assert frames is not None, "a network with an eye needs pictures"
            if frames.dim() == 5:
                stack, past = frames, frames[:, -1, :-1].flip(1)
            else:
                past = state[:, self.memory :].view(b, STACK - 1, *self.shape)
                stack, past = self.stacked(frames, past, keep)
            parts.append(self.eye(stack.flatten(0, 1)))
            kept = [past.flatten(1)]
        if self.map is not None:
            assert visited is not None, "a network with a map needs it"
            parts.append(functional.relu(self.map(visited.flatten(0, 1)[:, None])).flatten(1))
        x = self.count(numbers[..., self.plain].flatten(0, 1))
        if self.mix is not None:
            x = x + self.mix(torch.cat(parts, 1))
        if self.table is not None:
            where = numbers[..., self.named].flatten(0, 1).long() + self.starts
            x = x + self.table(where).sum(1)
        x = functional.relu(self.mixed(x)).view(b, t, -1)
        said, carried = {}, []
        memories = torch.split(state[:, : self.memory], self.memories, 1) if self.memories else ()
        for (name, layer), memory in zip(self.layers.items(), memories):
            x, memory = layer(x, memory, keep)
            x = said[name] = self.norms[name](x)
            carried.append(memory)
        head = torch.cat([said[name] for name in ("ssm", "gru", "lstm") if name in said], -1) if said else x
        head = functional.relu(self.firsts(self.first(head)))
        value, advantage = self.value(head), self.advantage(head)
        q = value + advantage - advantage.mean(-1, keepdim=True)  # Wang et al. 2016, eq. 9
        new = torch.cat([*carried, *kept], 1) if carried or kept else state
        return q, new, said | {"value": value, "advantage": advantage}
