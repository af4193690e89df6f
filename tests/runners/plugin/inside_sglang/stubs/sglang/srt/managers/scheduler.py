import importlib
import os

from sglang import __version__
from sglang.srt import runtime_context
from sglang.srt.managers.scheduler_components.internal_state import (
    SchedulerInternalStateController,
)

WORKERS = {
    "EAGLE": "eagle_worker_v2:EAGLEWorkerV2",
    "STANDALONE": "standalone_worker_v2:StandaloneWorkerV2",
    "FROZEN_KV_MTP": "frozen_kv_mtp_worker_v2:FrozenKVMTPWorkerV2",
}


class _Scheduler:
    def _build(self, server_args):
        from sglang.srt.model_executor.model_runner import ModelRunner

        self.device = os.environ.get("FAKE_DEVICE", "cpu")
        self.tp_cpu_group = None
        self.busy = False
        self.target = ModelRunner()
        self.draft_worker = None
        if (name := WORKERS.get(server_args["speculative_algorithm"])) is not None:
            module, _, attribute = name.partition(":")
            module = importlib.import_module(f"sglang.srt.speculative.{module}")
            places = ("args", 0, "ps", 0, "target") if OLD else ("args", 0, 0, "target")
            places = (server_args, *places[1:])
            self.draft_worker = getattr(module, attribute)(*places)
            self.draft_worker.init_cuda_graphs()
        self.internal_state = SchedulerInternalStateController(self)


OLD = __version__ == "0.5.17"

if OLD:

    class Scheduler(_Scheduler):
        def __init__(
            self,
            server_args,
            port_args,
            gpu_id,
            tp_rank,
            moe_ep_rank,
            pp_rank,
            attn_cp_rank,
            moe_dp_rank,
            dp_rank,
        ):
            self._build(server_args)

        def is_fully_idle(self, for_health_check=False):
            return not self.busy

        def get_internal_state(self, recv_req):
            return self.internal_state.get_internal_state(recv_req)

        def set_internal_state(self, recv_req):
            return self.internal_state.set_internal_state(recv_req)

else:

    class Scheduler(_Scheduler):
        def __init__(self, server_args, port_args):
            self._build(server_args)

        def is_fully_idle(self, for_health_check=False, ignore_waiting=False):
            return not self.busy


def run_scheduler_process(server_args, script, pipe):
    """Starts as SGLang's does, then does what a test tells it."""
    from sglang.srt.plugins import load_plugins

    load_plugins()
    runtime_context.arguments.update(server_args)
    try:
        scheduler = Scheduler(server_args, None, *([0] * 7 if OLD else []))
    except Exception as error:
        pipe.send({"error": repr(error)})
        return
    # Handlers are bound after the hooks were applied, as in SGLang.
    holder = scheduler if OLD else scheduler.internal_state
    seen = {"scheduler": scheduler, "holder": holder, "told": []}
    exec(script, seen)
    pipe.send(seen["told"])
