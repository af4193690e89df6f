from sglang.srt.managers.io_struct import GetInternalStateReqOutput, SetInternalStateReqOutput


class SchedulerInternalStateController:
    def __init__(self, scheduler):
        self.scheduler = scheduler

    def get_internal_state(self, recv_req):
        return GetInternalStateReqOutput({"version": "fake"})

    def set_internal_state(self, recv_req):
        return SetInternalStateReqOutput("pp_max_micro_batch_size" in recv_req.server_args)
