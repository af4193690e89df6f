from types import SimpleNamespace


class ModelRunner:
    def __init__(self, is_draft_worker=False):
        self.is_draft_worker = is_draft_worker

    def forward(
        self,
        forward_batch,
        skip_attn_backend_init=None,
        pp_proxy_tensors=None,
        reinit_attn_backend=False,
        split_forward_count=1,
    ):
        return SimpleNamespace(can_run_graph=getattr(forward_batch, "graph", False))
