"""How many GPUs a server uses."""

import pytest

from search_spaces.gpus import gpus_of_node, gpus_of_server, nodes_of


@pytest.mark.parametrize(
    ("flags", "server", "node"),
    [
        ({}, 1, 1),
        ({"tp-size": 8}, 8, 8),
        ({"tp-size": 8, "pp-size": None}, 8, 8),
        ({"tp-size": 4, "pp-size": 2}, 8, 8),
        ({"tp-size": 2, "dp-size": 4}, 8, 8),
        ({"tp-size": 8, "dp-size": 8, "enable-dp-attention": True}, 8, 8),
        ({"tp-size": 16, "nnodes": 2}, 16, 8),
        ({"tp-size": 8, "device": "cuda:0"}, 8, 8),
        ({"tp-size": 8, "device": "cpu"}, 0, 0),
    ],
)
def test_gpus(flags, server, node):
    assert (gpus_of_server(flags), gpus_of_node(flags)) == (server, node)


def test_nodes():
    assert nodes_of({}) == 1
    assert nodes_of({"nnodes": 2}) == 2
