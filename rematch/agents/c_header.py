"""Policies as one C99 header for a robot: float32, no allocation, no dependency but math.h.

The header holds the weights of the policy tower, the scaling of observations and the clipping and scaling of
actions. Its function returns what the ONNX file of agents/onnx_export.py returns, up to rounding.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematch.agents.deployed_policy import (
    Column,
    action_columns,
    action_quantities,
    observation_columns,
    quantities,
)
from rematch.agents.learners.q_policy import QPolicy
from rematch.agents.policy import Policy, digest
from rematch.core.errors import ConfigError
from rematch.core.spec import Role
from rematch.storage.atomic_files import os_errors_as_run_error, replace_file

WIDTH = 110  # characters of a line
MOST_WEIGHTS = 1 << 20  # 4 MiB of flash: more is no network for a robot


def check(policies: Iterable[Policy]) -> None:
    """ConfigError for a network that is not written as C, before any file is written."""
    for policy in policies:
        if isinstance(policy, QPolicy) or policy.config.in_torch:
            raise ConfigError("--c-header: expected a network of fully connected layers; a recurrent "
                              "network, an encoder, a transformer or a user module: --onnx")
        if policy.weights.size > MOST_WEIGHTS:
            raise ConfigError(f"--c-header: {policy.weights.size:,} weights; expected at most "
                              f"{MOST_WEIGHTS:,}")


def write(policy: Policy, exported: Mapping[str, Any], path: Path) -> Path:
    """Write the header to `path`; exported: the metadata of the policy file."""
    check([policy])
    with os_errors_as_run_error(f"{path.name} was not written"):
        replace_file(path, Header(policy, identifier(path.stem)).text(exported).encode())
    return path


def identifier(text: str) -> str:
    """The text as a C identifier."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return f"policy_{name}" if not name or name[0].isdigit() else name


def number(value: float) -> str:
    """A float32 as a C literal that the compiler reads back to the same bits."""
    single = np.float32(value)
    if np.isinf(single):
        return "-INFINITY" if single < 0 else "INFINITY"
    return f"{single!s}f"


def array(kind: str, name: str, literals: Sequence[str]) -> list[str]:
    """The definition of a constant array, wrapped."""
    lines, line = [f"static const {kind} {name}[{max(1, len(literals))}] = {{"], "   "
    for literal in literals or ["0"]:
        if len(line) + len(literal) + 2 > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {literal},"
    return [*lines, line, "};"]


def numbers(name: str, values: NDArray[Any] | Sequence[float]) -> list[str]:
    return array("float", name, [number(value) for value in np.ravel(values)])


def texts(name: str, values: Iterable[str]) -> list[str]:
    escaped = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return array("char *const", name, [f'"{value}"' for value in escaped])


def comment(text: str) -> str:
    """Text that cannot end a comment."""
    return text.replace("*/", "* /").replace("\n", " ")


@dataclass(frozen=True)
class Header:
    """The header of one policy; `name` is the prefix of all its names."""

    policy: Policy
    name: str

    @property
    def role(self) -> Role:
        return self.policy.role

    @property
    def discrete(self) -> bool:
        return self.role.actions.kind == "discrete"

    @property
    def output_columns(self) -> list[Column]:
        if self.discrete:
            return [Column(name, "probability", 0.0, 1.0) for name in self.role.actions.names]
        return list(action_columns(self.role))

    def text(self, exported: Mapping[str, Any]) -> str:
        guard = f"{self.name.upper()}_H"
        parts = [self.head(exported), f"#ifndef {guard}", f"#define {guard}", "", "#include <math.h>", "",
                 *self.constants(), "", *self.weights(), "", self.functions(), "",
                 f"#endif /* {guard} */", ""]
        return "\n".join(parts)

    def head(self, exported: Mapping[str, Any]) -> str:
        lines = [
            f"{self.name}: the policy of {exported['role']} in {exported['game']}, after iteration "
            f"{exported['iteration']} of its training by Rematch.",
            f"SHA-256 of the float32 weights: {digest(self.policy.weights)}", "",
            self.usage(), "", "Inputs, observation[]:", *map(column_line, *counted(self.input_columns)),
            "", "Outputs, output[]:", *map(column_line, *counted(self.output_columns)),
        ]  # fmt: skip
        wrapped = [part for line in lines for part in textwrap.wrap(comment(line), WIDTH - 3) or [""]]
        return "\n".join(["/*", *(f" * {line}".rstrip() for line in wrapped), " */"])

    def usage(self) -> str:
        if self.discrete:
            return (f"int {self.name}_act(observation, legal, output) returns the index of the most likely "
                    "legal action, or -1 if an input is not finite, a category is out of range or no action "
                    "is legal. legal[]: 1 where an action is legal; a null pointer: all are.")
        return (f"int {self.name}_act(observation, output) returns 0, or -1 if an input is not finite or a "
                "category is out of range; the output is then the value nearest to 0 in each range.")

    @property
    def input_columns(self) -> list[Column]:
        return list(observation_columns(self.role))

    def constants(self) -> list[str]:
        upper, role = self.name.upper(), self.role
        columns, outputs = self.input_columns, self.output_columns
        sizes = f"enum {{ {upper}_INPUTS = {role.size}, {upper}_OUTPUTS = {role.actions.size} }};"
        lines = [sizes, "enum { /* index of each input */"]
        lines += [f"    {upper}_IN_{name} = {i}," for i, name in enumerate(constant_names(columns))]
        lines += ["};", "enum { /* index of each output */"]
        lines += [f"    {upper}_OUT_{name} = {i}," for i, name in enumerate(constant_names(outputs))]
        lines += ["};"]
        for word, described in (("input", columns), ("output", outputs)):
            lines += texts(f"{self.name}_{word}_name", (column.name for column in described))
            lines += texts(f"{self.name}_{word}_unit", (column.unit for column in described))
        return lines

    def weights(self) -> list[str]:
        """Constant arrays: scales, kinds of columns, layers."""
        name, units = self.name, quantities(self.role)
        lines = []
        for key in ("middle", "half", "low", "high"):
            lines += numbers(f"{name}_{key}", [getattr(unit, key) for unit in units])
        lines += array("unsigned char", f"{name}_root", [str(int(unit.root)) for unit in units])
        lines += array("unsigned char", f"{name}_coded", [str(int(u.if_negative is not None)) for u in units])
        lines += numbers(f"{name}_code", [unit.if_negative or 0.0 for unit in units])
        lines += array("int", f"{name}_categories", list(map(str, self.role.categories)))
        if not self.discrete:
            scales = action_quantities(self.role)
            for key in ("middle", "half"):
                lines += numbers(f"{name}_action_{key}", [getattr(scale, key) for scale in scales])
        for key, values in self.layers().items():
            lines += numbers(f"{name}_{key}", values)
        return lines

    def layers(self) -> dict[str, NDArray[Any]]:
        """Name in the header -> weights of the policy tower and its head; the value head is left out."""
        arrays, config = self.policy.arrays(), self.policy.config
        tower = "trunk" if config.one_tower else "policy"
        out = {}
        for i in range(len(config.hidden)):
            out[f"weight_{i}"] = arrays[f"{tower}.{i}.weight"]
            out[f"bias_{i}"] = arrays[f"{tower}.{i}.bias"]
        if f"{tower}.0.table" in arrays:
            out["table"] = arrays[f"{tower}.0.table"]
        return out | {"head_weight": arrays["policy.head.weight"], "head_bias": arrays["policy.head.bias"]}

    def functions(self) -> str:
        config, role = self.policy.config, self.role
        numeric, has_table = role.categories.count(0), any(role.categories)
        inputs = numeric * (1 + 2 * config.fourier)
        widest = max(*config.hidden, role.actions.size, 1)
        activation = "tanhf(sum)" if config.activation == "tanh" else "fmaxf(sum, 0.0f)"
        dense = [f"    {self.name}_dense({self.name}_weight_{i}, {self.name}_bias_{i}, {width}, "
                 f"{config.hidden[i - 1]}, layer[{(i + 1) % 2}], layer[{i % 2}]);\n"
                 f"    {self.name}_activate({width}, layer[{i % 2}]);"
                 for i, width in enumerate(config.hidden) if i]
        values = {
            "NAME": self.name, "INPUTS": str(role.size), "OUTPUTS": str(role.actions.size),
            "NUMERIC": str(max(1, inputs)), "COUNT": str(inputs), "WIDEST": str(widest),
            "FIRST": str(config.hidden[0]), "LAST": str(config.hidden[-1]),
            "LASTLAYER": str((len(config.hidden) - 1) % 2), "ACTIVATION": activation,
            "FOURIER": FOURIER.replace("OCTAVES", str(config.fourier)) if config.fourier else "",
            "TABLE": TABLE if has_table else "", "DENSE": "\n".join(dense),
        }  # fmt: skip
        template = COMMON + (DISCRETE if self.discrete else CONTINUOUS)
        for key in ("FOURIER", "TABLE"):  # their text has placeholders too
            template = template.replace(f"@{key}@", values[key])
        return re.sub(r"@([A-Z]+)@", lambda match: values[match[1]], template)


def constant_names(columns: Sequence[Column]) -> list[str]:
    """A name for each column that C accepts; different columns have different names."""
    names: list[str] = []
    for index, column in enumerate(columns):
        name = re.sub(r"\W", "_", column.name, flags=re.ASCII).upper()
        names.append(f"{name}_{index}" if name in names else name)
    return names


def counted(columns: Sequence[Column]) -> tuple[Iterable[int], Sequence[Column]]:
    return range(len(columns)), columns


def column_line(index: int, column: Column) -> str:
    """Index, name, unit and range of a column."""
    bounds = "" if column.low is None or column.high is None else f", {column.low:g} to {column.high:g}"
    note = f"; {column.note}" if column.note else ""
    return f"  {index}: {column.name} [{column.unit or 'number'}]{bounds}{note}"


COMMON = """\
/* out[rows] = weight[rows][columns] in[columns] + bias[rows] */
static inline void @NAME@_dense(const float *weight, const float *bias, int rows, int columns,
                                const float *in, float *out) {
    for (int r = 0; r < rows; r++) {
        float sum = bias[r];
        for (int c = 0; c < columns; c++) sum += weight[r * columns + c] * in[c];
        out[r] = sum;
    }
}

static inline void @NAME@_activate(int count, float *values) {
    for (int i = 0; i < count; i++) {
        const float sum = values[i];
        values[i] = @ACTIVATION@;
    }
}

/* Scale and clip one input; not finite stays not finite. */
static inline float @NAME@_scale(int i, float quantity) {
    float x = (quantity - @NAME@_middle[i]) / @NAME@_half[i];
    if (@NAME@_root[i]) x = (x < 0.0f ? -2.0f : 2.0f) * (sqrtf(fabsf(x) + 1.0f) - 1.0f);
    if (x < @NAME@_low[i]) x = @NAME@_low[i];
    if (x > @NAME@_high[i]) x = @NAME@_high[i];
    return @NAME@_coded[i] && quantity < 0.0f ? @NAME@_code[i] : x;
}

/* Means or logits heads[@OUTPUTS@]; -1 where an input is not finite or no category. */
static inline int @NAME@_heads(const float *observation, float *heads) {
    float numeric[@NUMERIC@], layer[2][@WIDEST@];
    int count = 0;
    (void)numeric;
    for (int i = 0; i < @INPUTS@; i++) {
        if (!isfinite(observation[i])) return -1;
        if (@NAME@_categories[i] == 0) numeric[count++] = @NAME@_scale(i, observation[i]);
    }
@FOURIER@    @NAME@_dense(@NAME@_weight_0, @NAME@_bias_0, @FIRST@, @COUNT@, numeric, layer[0]);
@TABLE@    @NAME@_activate(@FIRST@, layer[0]);
@DENSE@
    @NAME@_dense(@NAME@_head_weight, @NAME@_head_bias, @OUTPUTS@, @LAST@, layer[@LASTLAYER@], heads);
    return 0;
}
"""

FOURIER = """\
    for (int k = 0, first = count; k < OCTAVES; k++) { /* sines, then cosines, of every octave */
        for (int i = 0; i < first; i++) numeric[count++] = sinf(3.14159265f * (float)(1 << k) * numeric[i]);
        for (int i = 0; i < first; i++) numeric[count++] = cosf(3.14159265f * (float)(1 << k) * numeric[i]);
    }
"""

TABLE = """\
    for (int i = 0, row = 0; i < @INPUTS@; row += @NAME@_categories[i++]) { /* one row per category */
        if (@NAME@_categories[i] == 0) continue;
        const float category = observation[i] - @NAME@_middle[i];
        if (!(category >= 0.0f && category < (float)@NAME@_categories[i])) return -1;
        for (int j = 0; j < @FIRST@; j++) layer[0][j] += @NAME@_table[(row + (int)category) * @FIRST@ + j];
    }
"""

CONTINUOUS = """
static inline int @NAME@_act(const float *observation, float *output) {
    const int status = @NAME@_heads(observation, output);
    for (int i = 0; i < @OUTPUTS@; i++) {
        const float middle = @NAME@_action_middle[i], half = @NAME@_action_half[i];
        float x = status == 0 && isfinite(output[i]) ? output[i] : half > 0.0f ? -middle / half : 0.0f;
        if (x < -1.0f) x = -1.0f;
        if (x > 1.0f) x = 1.0f;
        output[i] = middle + half * x;
    }
    return status;
}"""

DISCRETE = """
static inline int @NAME@_act(const float *observation, const unsigned char *legal, float *output) {
    int best = -1;
    float sum = 0.0f;
    if (@NAME@_heads(observation, output) != 0) return -1;
    for (int i = 0; i < @OUTPUTS@; i++)
        if ((!legal || legal[i]) && (best < 0 || output[i] > output[best])) best = i;
    if (best < 0) return -1;
    const float largest = output[best];
    for (int i = 0; i < @OUTPUTS@; i++) {
        output[i] = !legal || legal[i] ? expf(output[i] - largest) : 0.0f;
        sum += output[i];
    }
    for (int i = 0; i < @OUTPUTS@; i++) output[i] /= sum;
    return best;
}"""
