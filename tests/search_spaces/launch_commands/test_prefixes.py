"""Prefixes: which of them an exported command begins with."""

import pytest

from search_spaces.launch_commands.prefixes import prefix_here


@pytest.mark.parametrize(
    "words",
    ["numactl -N 0 -m 0", "/usr/bin/taskset -c 0-15", "chrt -f 50", "nice -n -5", "ionice -c1",
     "env A=1", "env A=1 numactl -N 0", "nice numactl --cpunodebind=0"],
)  # fmt: skip
def test_pinning_belongs_to_the_command(words):
    assert prefix_here(words.split()) == tuple(words.split())


@pytest.mark.parametrize(
    "words",
    ["", "docker exec sglang", "srun -n1", "ssh gpu-1", "kubectl exec pod --", "sudo -E",
     "numactl -N 0 docker exec sglang", "docker exec sglang numactl -N 0", "env -i A=1",
     "my-wrapper"],
)  # fmt: skip
def test_what_goes_elsewhere_is_left_to_a_note(words):
    assert prefix_here(words.split()) == ()


def test_the_commands_own_variables_win_as_they_do_in_a_trial():
    words = ["env", "A=1", "B=2", "-u", "C", "-uD", "--unset=E", "numactl", "-N", "0"]
    assert prefix_here(words, {"A", "C", "D", "E"}) == ("env", "B=2", "numactl", "-N", "0")
    assert prefix_here(words, {"C"}) == ("env", "A=1", "B=2", "-uD", "--unset=E", *words[-3:])
