"""Two ranks with the server's torch switch together or not at all."""

from __future__ import annotations

import json
import subprocess

import pytest

from runners.plugin.package import FOLDER

pytestmark = pytest.mark.sglang

RANK = """
import json, sys
from types import SimpleNamespace
import torch.distributed as dist

sys.path.insert(0, sys.argv[1])
from tuner_sglang_plugin.hot_switch import HeldStates, HotSwitch
from tuner_sglang_plugin.conditions import Shape
from tuner_sglang_plugin.log import place

rank = int(sys.argv[3])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)

class Worker:
    speculative_num_steps, speculative_num_draft_tokens = 5, 6
    device, gpu_id = "cpu", 0
    def build_adaptive_runtime_state(self, speculative_num_steps, speculative_num_draft_tokens):
        return SimpleNamespace(speculative_num_steps=speculative_num_steps,
                               speculative_num_draft_tokens=speculative_num_draft_tokens)
    def apply_runtime_state(self, state):
        self.__dict__.update(vars(state))

shapes = tuple(Shape(steps, steps + 1) for steps in (1, 2, 5))
switch, worker = HotSwitch(shapes), Worker()
switch._held = held = HeldStates(worker, shapes)
held.register(SimpleNamespace(speculative_num_steps=5, speculative_num_draft_tokens=6))
held.init_states()
busy = False
scheduler = SimpleNamespace(tp_cpu_group=dist.group.WORLD, is_fully_idle=lambda: not busy)
told = [place(), held.is_complete]
for steps, busy_ranks in ((2, ()), (1, (1,)), (1, (0,)), (1, (0, 1)), (1, ())):
    busy = rank in busy_ranks
    reason = switch.change(scheduler, {"speculative_num_steps": steps})
    told.append([reason, worker.speculative_num_steps])
print(json.dumps(told), flush=True)
# Without these two lines gloo's threads can outlive the interpreter and abort it.
dist.barrier()
dist.destroy_process_group()
"""


def test_busy_rank_stops_the_switch_on_all_ranks(cpu_server, tmp_path):
    processes = [
        subprocess.Popen(
            [str(cpu_server.python), "-c", RANK, str(FOLDER), str(tmp_path / "store"), str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    ended = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended
    busy = "requests are waiting or running"
    for rank, (out, log) in enumerate(ended):
        place, complete, *switches = json.loads(out)
        assert (place, complete) == (f"rank={rank}/2", True)
        assert switches == [[None, 2], [busy, 2], [busy, 2], [busy, 2], [None, 1]]
        lines = [line for line in log.splitlines() if line.startswith("tuner_sglang_plugin:")]
        assert lines == [
            f"tuner_sglang_plugin: rank={rank}/2 steps 5 -> 2",
            f"tuner_sglang_plugin: rank={rank}/2 steps 2 -> 1",
        ]
