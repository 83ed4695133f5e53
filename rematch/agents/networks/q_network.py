"""The recurrent Q network: CNN -> GRU (short) -> LSTM (mid) -> SSM (long) -> dueling Q head, in series.

The head reads the outputs of SSM, GRU and LSTM, concatenated; LayerNorm follows every layer. Each recurrent
layer can be left out. The state is one row of numbers per game, [B, M]: the recurrent states of the layers,
then the last two frames, because the CNN reads three at once. An episode starts with zeros.

Weights are one flat vector (agents/policy.py): `QNetwork.bind` makes the parameters views of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from rematch.agents.networks.rnn_cells import Gru, Lstm

STACK = 3  # frames that the CNN reads at once
SLOWEST_DECAY, FASTEST_DECAY = 0.9999, 0.9  # initial decays of the SSM per step


class QNetworkConfig(Protocol):
    """The settings that determine the shape of the network."""

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
    """x[t] = decay[t] x[t - 1] + drive[t] along dim 1 with x[-1] = 0, in log2 T rounds (Hillis, Steele 1986).

    Both are [B, T, H], real or complex. After the round of distance d each entry sums 2 d steps.
    """
    d = 1
    while d < drive.shape[1]:
        drive = torch.cat([drive[:, :d], drive[:, d:] + decay[:, d:] * drive[:, :-d]], 1)
        decay = torch.cat([decay[:, :d], decay[:, d:] * decay[:, :-d]], 1)
        d *= 2
    return drive


class ConvEncoder(nn.Module):
    """[n, STACK, H, W] -> [n, features]. At 72 x 80 the first layer steps by one tile of 4 pixels."""

    def __init__(self, shape: Sequence[int], channels: Sequence[int]) -> None:
        super().__init__()
        first, second, third = channels
        large = [(STACK, first, 8, 4), (first, second, 4, 2), (second, third, 3, 1)]
        small = [(STACK, first, 3, 1), (first, second, 3, 2), (second, third, 3, 1)]
        layers, padding = (large, 0) if min(shape) >= 36 else (small, 1)
        self.convs = nn.ModuleList(nn.Conv2d(*layer, padding=padding) for layer in layers)
        self.norms = nn.ModuleList(nn.GroupNorm(1, layer[1]) for layer in layers)  # LayerNorm of an image
        with torch.no_grad():
            self.features = self(torch.zeros(1, STACK, *shape)).shape[1]

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        for conv, norm in zip(self.convs, self.norms):
            x = functional.relu(norm(conv(x)))
        return x.flatten(1)


class Ssm(nn.Module):
    """A diagonal linear recurrence x' = a x + sqrt(1 - |a|^2) W u (Orvieto et al. 2023), a in (0, 1).

    `log_decay` is log(-log |a|), so that |a| stays in (0, 1); with `is_complex` a is complex. At an episode
    start a is 0. The square root keeps the variance of x that of its input for every decay.
    """

    def __init__(self, inputs: int, width: int, is_complex: bool) -> None:
        super().__init__()
        self.width, self.is_complex = width, is_complex
        self.recurrent_size = 2 * width if is_complex else width
        self.input = nn.Linear(inputs, self.recurrent_size, bias=False)
        self.log_decay = nn.Parameter(torch.zeros(width))
        self.angle = nn.Parameter(torch.zeros(width)) if is_complex else None
        self.output = nn.Linear(self.recurrent_size, width)
        self.skip = nn.Linear(inputs, width)

    def decays(self) -> tuple[Tensor, Tensor]:
        """a [H], real or complex, and the factor of the input."""
        size = torch.exp(-torch.exp(self.log_decay))
        gain = torch.sqrt(1 - size * size)
        return (size if self.angle is None else torch.polar(size, self.angle)), gain

    def traced_step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step in real numbers, for ONNX files: x [B, inputs] -> [B, 1, width], state after."""
        size = torch.exp(-torch.exp(self.log_decay))
        drive = self.input(x)
        gain = torch.sqrt(1 - size * size)
        if self.angle is None:
            after = size * state + drive * gain
        else:
            real, imaginary = state.chunk(2, 1)
            drive_real, drive_imaginary = drive.chunk(2, 1)
            cosine, sine = size * torch.cos(self.angle), size * torch.sin(self.angle)
            after = torch.cat([cosine * real - sine * imaginary + drive_real * gain,
                               sine * real + cosine * imaginary + drive_imaginary * gain], 1)
        return (self.output(after) + self.skip(x))[:, None], after

    def forward(self, x: Tensor, state: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        if torch.onnx.is_in_onnx_export():
            return self.traced_step(x[:, 0], state * keep[:, 0])
        decay, gain = self.decays()
        drive = self.input(x)
        if self.is_complex:
            drive, state = (torch.complex(*part.chunk(2, -1)) for part in (drive, state))
        drive = drive * gain
        step = decay * keep
        if x.shape[1] == 1:
            states = (step[:, 0] * state + drive[:, 0])[:, None]  # acting: one multiply-add
        else:
            drive = torch.cat([drive[:, :1] + step[:, :1] * state[:, None], drive[:, 1:]], 1)
            states = scan(step, drive)
        flat = torch.cat([states.real, states.imag], -1) if self.is_complex else states
        return self.output(flat) + self.skip(x), flat[:, -1]


class QNetwork(nn.Module):
    """See the head of this file. shape: (H, W) of a frame or (); side: that of the visited mask or 0."""

    def __init__(
        self, shape: Sequence[int], side: int, categories: Sequence[int], actions: int, config: QNetworkConfig
    ) -> None:
        super().__init__()
        channels, width = config.channels, config.width
        self.shape, self.side, self.actions = tuple(shape), side, actions
        self.pixels = int(torch.Size(shape).numel()) if shape else 0
        self.conv_encoder = ConvEncoder(shape, channels) if shape else None
        self.visited_conv = nn.Conv2d(1, 8, 4, 4) if side else None
        visited_features = 8 * (side // 4) ** 2 if side else 0
        # Categorical columns are looked up: the product with a one-hot vector (spec.Field.categories).
        self.categorical = torch.tensor([i for i, n in enumerate(categories) if n], dtype=torch.long)
        self.numeric = torch.tensor([i for i, n in enumerate(categories) if not n], dtype=torch.long)
        first_rows, total = [], 0
        for n in categories:
            if n:
                first_rows.append(total)
            total += n
        self.first_rows = torch.tensor(first_rows, dtype=torch.long)  # of each column in the table
        self.embedding = nn.Embedding(total, width) if total else None
        # Image features and numbers have separate projections with their own scale of initial weights.
        conv_features = (self.conv_encoder.features if self.conv_encoder else 0) + visited_features
        self.conv_proj = nn.Linear(conv_features, width, bias=False) if conv_features else None
        self.number_proj = nn.Linear(len(self.numeric), width)
        self.input_norm = nn.LayerNorm(width)
        layers: dict[str, nn.Module] = {}
        if config.gru:
            layers["gru"] = Gru(width, width)
        if config.lstm:
            layers["lstm"] = Lstm(width, width)
        if config.ssm != "off":
            layers["ssm"] = Ssm(width, width, config.ssm == "complex")
        self.layers = nn.ModuleDict(layers)
        self.norms = nn.ModuleDict({name: nn.LayerNorm(width) for name in layers})
        self.head_proj = nn.Linear(width * max(1, len(layers)), width)
        self.head_norm = nn.LayerNorm(width)
        self.value, self.advantage = nn.Linear(width, 1), nn.Linear(width, actions)
        self.layer_sizes = [int(layer.recurrent_size) for layer in self.layers.values()]  # type: ignore[arg-type]
        self.recurrent_size = sum(self.layer_sizes)  # numbers of the recurrent states
        self.state_size = self.recurrent_size + (STACK - 1) * self.pixels  # and of the last frames

    def bind(self, flat: Tensor) -> None:
        """Make all parameters views of `flat` [P], in the order of `named_parameters`."""
        at = 0
        columns = self.categorical, self.numeric, self.first_rows
        self.categorical, self.numeric, self.first_rows = (x.to(flat.device) for x in columns)
        for parameter in self.parameters():
            parameter.data = flat[at : at + parameter.numel()].view(parameter.shape)
            at += parameter.numel()

    def stack_frames(self, frames: Tensor, past: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """Each frame with the two before it in its episode [B, T, STACK, H, W], and the last two frames."""
        older, last = past.unbind(1)
        one = torch.cat([last[:, None], frames[:, :-1]], 1) * keep[..., None]
        two = torch.cat([older[:, None], one[:, :-1]], 1) * keep[..., None]
        stack = torch.stack([frames, one, two], -1).permute(0, 1, 4, 2, 3)  # channels last in memory
        return stack, torch.stack([one[:, -1], frames[:, -1]], 1)

    def forward(
        self, frames: Tensor | None, structured: tuple[Tensor, Tensor | None], state: Tensor,
        episode_start: Tensor,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:  # fmt: skip
        """frames [B, T, H, W] in [0, 1]; structured: numbers [B, T, S], visited [B, T, K, K]; state [B, M].

        Frames may be stacked already: [B, T, STACK, H, W], newest first. episode_start [B, T] is 1 where an
        episode starts: the state before that step is not used. Returns q [B, T, A], the state after the last
        step, and the outputs of the layers.
        """
        numbers, visited = structured
        b, t = episode_start.shape
        keep = (1 - episode_start)[..., None]
        parts: list[Tensor] = []
        frame_state: list[Tensor] = []
        if self.conv_encoder is not None:
            assert frames is not None, "this network needs frames"
            if frames.dim() == 5:
                stack, past = frames, frames[:, -1, :-1].flip(1)
            else:
                past = state[:, self.recurrent_size :].view(b, STACK - 1, *self.shape)
                stack, past = self.stack_frames(frames, past, keep)
            parts.append(self.conv_encoder(stack.flatten(0, 1)))
            frame_state = [past.flatten(1)]
        if self.visited_conv is not None:
            assert visited is not None, "this network needs the visited mask"
            parts.append(functional.relu(self.visited_conv(visited.flatten(0, 1)[:, None])).flatten(1))
        x = self.number_proj(numbers[..., self.numeric].flatten(0, 1))
        if self.conv_proj is not None:
            x = x + self.conv_proj(torch.cat(parts, 1))
        if self.embedding is not None:
            rows = numbers[..., self.categorical].flatten(0, 1).long() + self.first_rows
            x = x + self.embedding(rows).sum(1)
        x = functional.relu(self.input_norm(x)).view(b, t, -1)
        outputs: dict[str, Tensor] = {}
        layer_states: list[Tensor] = []
        recurrent_states: tuple[Tensor, ...] = ()
        if self.layer_sizes:
            recurrent_states = torch.split(state[:, : self.recurrent_size], self.layer_sizes, 1)
        for (name, layer), layer_state in zip(self.layers.items(), recurrent_states):
            x, layer_state = layer(x, layer_state, keep)
            x = outputs[name] = self.norms[name](x)
            layer_states.append(layer_state)
        head = x
        if outputs:
            head = torch.cat([outputs[name] for name in ("ssm", "gru", "lstm") if name in outputs], -1)
        head = functional.relu(self.head_norm(self.head_proj(head)))
        value, advantage = self.value(head), self.advantage(head)
        q = value + advantage - advantage.mean(-1, keepdim=True)  # Wang et al. 2016, eq. 9
        state_after = torch.cat([*layer_states, *frame_state], 1) if layer_states or frame_state else state
        return q, state_after, outputs | {"value": value, "advantage": advantage}
