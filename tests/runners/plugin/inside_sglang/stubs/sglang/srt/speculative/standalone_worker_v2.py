from sglang.srt.speculative.eagle_worker_v2 import OLD, EAGLEWorkerV2


class StandaloneWorkerV2(EAGLEWorkerV2):
    if OLD:

        def __init__(self, server_args, gpu_id, ps, nccl_port, target_worker):
            self._build(server_args, gpu_id, target_worker)

    else:

        def __init__(self, server_args, gpu_id, nccl_port, target_worker):
            self._build(server_args, gpu_id, target_worker)
