from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2


class FrozenKVMTPWorkerV2(EAGLEWorkerV2):
    pass
