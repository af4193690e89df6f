class SetInternalStateReq:
    def __init__(self, server_args):
        self.server_args = server_args


class SetInternalStateReqOutput:
    def __init__(self, updated):
        self.updated = updated


class GetInternalStateReqOutput:
    def __init__(self, internal_state):
        self.internal_state = internal_state
