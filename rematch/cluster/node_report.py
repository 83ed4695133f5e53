"""What each node of a cluster has, compared with this machine: versions, compiled cores, processor."""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

import rematch
from rematch.cluster.connection import Cluster
from rematch.core import native_build
from rematch.core.errors import ConfigError
from rematch.core.system import system_memory
from rematch.worlds import registry

PACKAGES = ("ray", "numpy", "torch")
CORES = {"random numbers": "rematch.core.system.philox", "networks": "rematch.agents.networks.fused"}
# Instructions that each level of x86-64 adds, as Linux names them (psABI, version 1.0, table 3.1).
LEVELS = (
    ("v2", {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    ("v3", {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}),
    ("v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
)
ERROR = "error"


@dataclass
class NodeReport:
    """One node: its name, its entries, and what is missing there or different from this machine."""

    node: str
    entries: dict[str, str]
    problems: list[str] = field(default_factory=list)


def level(processor: str) -> str:
    """The level of a processor: x86-64-v3, or its architecture alone."""
    machine, *names = processor.split()
    if machine != "x86_64":
        return machine
    reached = "x86-64"
    for name, instructions in LEVELS:
        if not instructions <= set(names):
            break
        reached = f"x86-64-{name}"
    return reached


def describe() -> dict[str, str]:
    """The entries of this machine; a part that is missing has the entry "missing" and the reason."""
    entries = {"rematch": rematch.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            entries[package] = version(package)
        except PackageNotFoundError:
            entries[package] = "missing"
    for name, module in CORES.items():
        try:
            entries[f"core of {name}"] = importlib.import_module(module).BUILD
        except ImportError as error:
            entries[f"core of {name}"] = f"missing: {error}"
    for name in registry.names():
        try:
            entries[f"world {name}"] = registry.find(name).build or "built"
        except (ConfigError, ImportError) as error:
            entries[f"world {name}"] = f"missing: {error}"
    processor = native_build.processor()
    return entries | {"processor": processor, "level": level(processor),
                      "processors": str(len(os.sched_getaffinity(0))),
                      "memory": f"{system_memory.total_bytes() / 2**30:.1f} GiB"}


def exact_entries() -> dict[str, str]:
    """The entries of this machine on which the bits of games depend."""
    return {name: entry for name, entry in describe().items() if name not in ("processors", "memory")}


def reports(cluster: Cluster) -> list[NodeReport]:
    """A report of every node that is alive, and of this machine first."""
    local = describe()
    out = [NodeReport("this machine", local)]
    for name, entries in cluster.node_entries():
        out.append(NodeReport(name, entries, differences(local, entries)))
    return out


def differences(local: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """What is missing on the other node, or has other bits."""
    if ERROR in other:
        return [other[ERROR]]
    problems = []
    for name, entry in local.items():  # a world whose library is missing on both is not asked for
        value = other.get(name, "missing")
        if name in ("processors", "memory", "processor", "level"):
            continue
        if value != entry:
            problems.append(f"{name} {value}, expected {entry}")
    if other.get("processor") != local["processor"]:
        differ = set(local["processor"].split()) ^ set(other.get("processor", "").split())
        names = " ".join(sorted(differ))[:120]
        problems.append(f"another processor ({other.get('level')}; differs in {names}): other bits")
    return problems
