import sys


def run_detokenizer_process(pipe):
    from sglang.srt.plugins import load_plugins

    load_plugins()
    pipe.send(sorted(name for name in sys.modules if name.startswith("sglang.")))
