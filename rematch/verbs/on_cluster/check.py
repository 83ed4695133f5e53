"""Check the nodes of a Ray cluster: what is missing on which of them."""

from __future__ import annotations

from collections.abc import Iterator

from rematch.cluster.connection import LOCAL, check_address, connected
from rematch.cluster.node_report import NodeReport, reports
from rematch.reporting.result import Block, Result, Table

COLUMNS = ("rematch", "python", "ray", "numpy", "torch", "level", "processors", "memory")


class ClusterReport(Result):
    """A row for this machine and for every node; `usable` is whether all nodes give the same bits."""

    def blocks(self) -> Iterator[Block]:
        rows = [["node", *COLUMNS, "missing or different"]]
        for node in self["nodes"]:
            entries = [node["entries"].get(name, "?") for name in COLUMNS]
            rows.append([node["node"], *entries, "; ".join(node["problems"]) or "nothing"])
        yield Table(rows)
        bad = sum(bool(node["problems"]) for node in self["nodes"])
        count = len(self["nodes"]) - 1
        yield (f"{count} nodes: all can play for this machine, to the same bits" if not bad
               else f"{bad} of {count} nodes cannot be used: their games would be refused")


def cluster_check(address: str = LOCAL) -> ClusterReport:
    """Compare every node of a cluster with this machine."""
    check_address(address)
    with connected(address) as cluster:
        nodes = reports(cluster)
    return ClusterReport({"cluster": address, "usable": not any(node.problems for node in nodes),
                          "nodes": [_row(node) for node in nodes]})


def _row(node: NodeReport) -> dict[str, object]:
    return {"node": node.node, "entries": dict(node.entries), "problems": list(node.problems)}
