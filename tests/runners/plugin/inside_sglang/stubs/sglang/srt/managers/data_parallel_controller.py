import multiprocessing


def run_data_parallel_controller_process(arguments, script, pipe):
    """Starts a scheduler, and waits for its word alone: its own end of the pipe stays open."""
    from sglang.srt.managers.scheduler import run_scheduler_process
    from sglang.srt.plugins import load_plugins

    load_plugins()
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=run_scheduler_process, args=(arguments, script, writer))
    process.start()
    pipe.send(reader.recv())
    process.join()
