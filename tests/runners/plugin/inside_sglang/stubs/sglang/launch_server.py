"""Starts one detokenizer and one scheduler: `python -m sglang.launch_server ARGUMENTS SCRIPT`."""

import json
import multiprocessing
import os
import signal
import sys

from sglang.srt.plugins import load_plugins


def main():
    arguments, script = json.loads(sys.argv[1]), sys.argv[2]
    before = sorted(name for name in sys.modules if name.startswith("sglang."))
    context = multiprocessing.get_context("spawn")
    from sglang.srt.managers.detokenizer_manager import run_detokenizer_process
    from sglang.srt.managers.scheduler import run_scheduler_process

    if arguments.get("dp_size", 1) > 1:
        from sglang.srt.managers.data_parallel_controller import (
            run_data_parallel_controller_process as run_scheduler_process,
        )

    told = {"main": before}
    for name, target, given in (
        ("detokenizer", run_detokenizer_process, ()),
        ("scheduler", run_scheduler_process, (arguments, script)),
    ):
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=target, args=(*given, writer))
        process.start()
        writer.close()
        try:
            told[name] = reader.recv()
        except EOFError:
            process.join()
            raise RuntimeError(f"the {name} died with code {process.exitcode}") from None
        process.join()
    print(json.dumps(told))


if __name__ == "__main__":
    # What a shell starts in the background ignores it, as do its children.
    in_background = os.environ.get("FAKE_IN_BACKGROUND")
    signal.signal(signal.SIGQUIT, signal.SIG_IGN if in_background else signal.SIG_DFL)
    load_plugins()
    main()
