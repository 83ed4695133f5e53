"""Connecting to a cluster: every refusal is one line."""

from __future__ import annotations

import importlib.util
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rematch.cli.main import main
from rematch.cluster import connection
from rematch.cluster.connection import check_address, connected, prepare, refusal
from rematch.cluster.driver import ClusterError
from rematch.cluster.node_report import describe, differences, level
from rematch.core.errors import ConfigError, NotInstalled


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a token nor other variables of Ray: an empty number ends Python when Ray is imported."""
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS", *connection.SETTINGS,
                 *connection.ONE_MACHINE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("address", ["ray", "ray://127.0.0.1:10001", "ray://node-1.lab:1", "ray://[::1]:99"])
def test_addresses_of_clusters_are_accepted(address: str) -> None:
    assert check_address(address) == address


@pytest.mark.parametrize("address", ["", "Ray", "ray://", "ray://host", "ray://host:0", "ray://host:70000",
                                     "http://host:1", "ray://a b:1", "ray://host:1/x"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="expected ray, or ray://HOST:PORT"):
        check_address(address)


def test_cluster_without_ray_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    line = r"Ray is not installed: .*pip install .*ray\[client\]"
    with pytest.raises(NotInstalled, match=line), connected("ray"):
        pass


def test_cluster_elsewhere_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "no token; expected that of the cluster in RAY_AUTH_TOKEN"
    with pytest.raises(ConfigError, match=line), connected("ray://127.0.0.1:9"):
        pass


def test_own_cluster_gets_a_random_token() -> None:
    first, second = (prepare(one_machine=True, own_token=True) for _ in range(2))
    assert len(first["RAY_AUTH_TOKEN"]) == 64 and first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]
    assert first["RAY_AUTH_MODE"] == "token" and "RAY_AUTH_TOKEN" not in os.environ


@pytest.mark.parametrize(("address", "limited"), [("127.0.0.1:6379", True), ("localhost:6379", True),
                                                  ("[::1]:6379", True), ("10.0.0.7:6379", False)])
def test_cluster_on_127_0_0_1_is_joined_under_that_address(
        monkeypatch: pytest.MonkeyPatch, address: str, limited: bool) -> None:
    """Otherwise Ray would look for a node of this machine under another address, and wait for minutes."""
    environments: list[dict[str, str]] = []

    def connect(name: str, environment: dict[str, str], request: object) -> None:
        environments.append(environment)
        raise ClusterError("seen")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(connection, "connect", connect)
    monkeypatch.setattr(connection, "listens", lambda host, port: True)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ClusterError, match="seen"), connected("ray"):
        pass
    assert (connection.ONE_MACHINE.items() <= environments[0].items()) is limited


def test_closed_port_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"ray://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ClusterError, match="nothing listens there"), connected(address):
        pass


@pytest.mark.parametrize("address", ["garbage", "ray://127.0.0.1:10001", "127.0.0.1", "127.0.0.1:0", "a b:1"])
def test_odd_addresses_in_the_environment_are_one_line(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match=r"RAY_ADDRESS = '.*': expected HOST:PORT"), connected("ray"):
        pass


def test_closed_port_in_the_environment_is_one_line_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would look for three minutes for a head that is not there."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{server.getsockname()[1]}")
    with pytest.raises(ClusterError, match=r"RAY_ADDRESS = 127\.0\.0\.1:[0-9]+: nothing listens there"):
        connected("ray").__enter__()


@given(text=st.text(max_size=400))
def test_refusals_are_one_line(text: str) -> None:
    line = refusal("ray://a:1", text)
    assert line.splitlines() == [line] and line.startswith("--cluster = ray://a:1: ")


@pytest.mark.parametrize("text", ["Failed to connect to Ray cluster at 127.0.0.1:33631", "timed out"])
def test_refusal_without_a_reason_names_the_token(text: str) -> None:
    """On a busy machine Ray does not always say that the token was wrong."""
    assert "expected the cluster's token in RAY_AUTH_TOKEN" in refusal("ray", text)


def test_commands_refuse_a_wrong_address(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words in (["train", "quick"], ["sweep", "quick", "--seeds", "0-1"], ["cluster", "check"]):
        assert main([*words, "--cluster", "http://a:1"]) == 2
        assert capsys.readouterr().err == (
            "rematch: --cluster = 'http://a:1': expected ray, or ray://HOST:PORT\n")
    assert main(["train", "quick", "--actors", "3"]) == 2
    assert "--actors has no effect without --cluster" in capsys.readouterr().err


def test_machine_does_not_differ_from_itself() -> None:
    here = describe()
    assert differences(here, here) == []


def test_differences_name_what_is_missing_on_a_node() -> None:
    here = describe()
    there = {name: entry for name, entry in here.items() if name != "torch"} | {"numpy": "1.0"}
    there["processor"] = here["processor"] + " avx9000"
    there["core of networks"] = "missing: no compiler"
    problems = " | ".join(differences(here, there))
    for part in ("torch missing", "numpy 1.0, expected", "avx9000", "core of networks missing: no compiler"):
        assert part in problems
    assert differences(here, {"python": "3.11", "error": "rematch cannot be imported"}) == [
        "rematch cannot be imported"]


def test_level_of_a_processor_needs_all_its_instructions() -> None:
    v2 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
    v3 = v2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe"
    assert level("x86_64 sse2") == "x86-64"
    assert level(f"x86_64 {v2}") == "x86-64-v2"
    assert level(f"x86_64 {v3}") == "x86-64-v3"
    assert level(f"x86_64 {v3.replace(' fma', '')} avx512f avx512bw") == "x86-64-v2"
    assert level("aarch64 asimd") == "aarch64"
