from sglang import __version__

if __version__ == "0.5.17":

    def resolve_num_tokens_per_req(
        *, phase, server_args, spec_algorithm=None, is_draft_worker=False, num_draft_tokens=None
    ):
        """From the arguments of the start, as 0.5.17 has it: the fault that the plugin repairs."""
        if num_draft_tokens is None:
            num_draft_tokens = server_args["speculative_num_draft_tokens"]
        return num_draft_tokens

else:

    def resolve_num_tokens_per_req(
        *, phase, spec_algorithm=None, is_draft_worker=False, num_draft_tokens=None
    ):
        from sglang.srt.runtime_context import get_spec

        return num_draft_tokens or get_spec().speculative_num_draft_tokens
