import os
from types import SimpleNamespace

from sglang import __version__
from sglang.srt.runtime_context import get_context, get_spec
from sglang.srt.speculative.spec_utils import resolve_num_tokens_per_req

OLD = __version__ == "0.5.17"


class State:
    def __init__(self, steps, tokens, extend_width):
        self.speculative_num_steps = steps
        self.speculative_num_draft_tokens = tokens
        self.extend_width = extend_width


def width_of_draft_extend(server_args):
    told = {"server_args": server_args} if OLD else {}
    return resolve_num_tokens_per_req(phase="draft_extend", **told)


class EagleDraftWorker:
    def __init__(self, runner):
        self.draft_runner = runner
        self.cuda_graph_runner = object() if os.environ.get("FAKE_GRAPHS") else None

    def _run(self):
        if self.cuda_graph_runner is None:
            mode = SimpleNamespace(is_target_verify=lambda: False, is_decode=lambda: True)
            self.draft_runner.forward(SimpleNamespace(forward_mode=mode))

    if OLD:

        def draft(self, batch):
            self._run()

        def _draft_extend_for_decode(self, batch, batch_result):
            self._run()

    else:

        def draft(self, batch, *, with_topology=False):
            self._run()

        def _draft_extend_for_decode(self, batch, batch_result, *, kv_loc_plan=None):
            self._run()


class EAGLEWorkerV2:
    if OLD:

        def __init__(self, server_args, gpu_id, ps, nccl_port, target_worker):
            self._build(server_args, gpu_id, target_worker)

    else:

        def __init__(self, server_args, gpu_id, nccl_port, target_worker):
            self._build(server_args, gpu_id, target_worker)

    def _build(self, server_args, gpu_id, target_worker):
        from sglang.srt.model_executor.model_runner import ModelRunner

        self.server_args = dict(server_args)
        self.gpu_id = gpu_id
        self.device = "cpu"
        self.topk = get_spec().speculative_eagle_topk
        self.speculative_num_steps = get_spec().speculative_num_steps
        self.speculative_num_draft_tokens = get_spec().speculative_num_draft_tokens
        self.adaptive_controller = object() if server_args.get("speculative_adaptive") else None
        self.target_worker = target_worker
        self.draft_worker = EagleDraftWorker(ModelRunner(is_draft_worker=True))
        self.state = None

    def init_cuda_graphs(self):
        if self.adaptive_controller is not None:
            started = State(
                self.speculative_num_steps,
                self.speculative_num_draft_tokens,
                width_of_draft_extend(self.server_args),
            )
            self.state = started
            self.adaptive_controller.register(started)
            self.adaptive_controller.init_states(cuda_graph_bs=None)

    def build_adaptive_runtime_state(
        self, speculative_num_steps, speculative_num_draft_tokens, cuda_graph_bs=None
    ):
        before = get_context().resolved_server_args_dict()
        get_context().override("build", speculative_num_draft_tokens=speculative_num_draft_tokens)
        state = State(
            speculative_num_steps,
            speculative_num_draft_tokens,
            width_of_draft_extend(self.server_args),
        )
        get_context().override("restore", **before)
        return state

    if os.environ.get("FAKE_CHANGED") == "apply_runtime_state":

        def apply_runtime_state(self, state, stream=None):
            pass

    else:

        def apply_runtime_state(self, state):
            self.speculative_num_steps = state.speculative_num_steps
            self.speculative_num_draft_tokens = state.speculative_num_draft_tokens
            self.state = state

    def activate_step_by_batch(self, batch_size):
        if self.adaptive_controller is not None:
            self.adaptive_controller.activate_step_by_batch(batch_size)

    def on_verify_complete_cpu(self, num_correct_drafts_per_req, batch_size=0):
        if self.adaptive_controller is not None:
            self.adaptive_controller.on_verify_complete(
                num_correct_drafts_per_req, batch_size=batch_size
            )
