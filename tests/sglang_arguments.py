"""A package `sglang` that has arguments only, as versions before and from 0.5.23 on handle them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SERVER_ARGS = """
import argparse, logging, os, sys

print("a library prints as it pleases")

class ServerArgs:
    def __init__(self, parsed):
        self.__dict__.update(vars(parsed))
        {before}

    def {resolve}(self):
        if not os.path.isabs(self.model_path) and os.environ.get("HF_HUB_OFFLINE") == "1":
            if self.model_path.startswith("elsewhere/"):
                raise OSError("not here, and the hub is not asked")
            if self.model_path.startswith("hub/"):
                raise OSError("We couldn't connect to 'https://hub' to load the files, and so on")
        if self.speculative_eagle_topk == 1 and self.speculative_num_steps is not None:
            self.speculative_num_draft_tokens = self.speculative_num_steps + 1
        if self.speculative_algorithm and self.max_running_requests is None:
            self.max_running_requests = 48
        if self.speculative_eagle_topk == 8:
            raise ValueError("topk 8 is\\n  not to its taste")
        if self.attention_backend is None:
            tree = (self.speculative_eagle_topk or 1) > 1
            self.attention_backend = "flashinfer" if tree else "fa3"
        if self.page_size == 3:
            self.page_size = 4
        if os.environ.get("SGLANG_MOOD") == "bad":
            raise AssertionError
        if os.environ.get("SGLANG_MOOD") in ("slow", "stuck"):
            import time
            time.sleep(0.2 if os.environ["SGLANG_MOOD"] == "slow" else 600)
        if os.environ.get("SGLANG_MOOD") == "dying":
            print("it hurts", file=sys.stderr)
            sys.stderr.flush()
            os._exit(7)
        if os.environ.get("SGLANG_MOOD") == "odd":
            raise ValueError("a \\x1b[31mfile\\0 named \\udcff")
        if os.environ.get("SGLANG_MOOD") == "odder":
            self.page_size = {(1, 2): 3, "line": "one\\u2028two"}

    def check_server_args(self):
        if self.schedule_conservativeness < 0:
            raise ValueError("schedule_conservativeness must be non-negative")

def prepare_server_args(argv):
    parser = argparse.ArgumentParser(prog="sglang serve")
    for name in ("model-path", "host", "device", "attention-backend", "speculative-algorithm",
                 "speculative-draft-model-path", "kv-cache-dtype"):
        parser.add_argument("--" + name)
    for name in ("port", "tp-size", "page-size", "max-running-requests", "random-seed",
                 "speculative-num-steps", "speculative-eagle-topk",
                 "speculative-num-draft-tokens"):
        parser.add_argument("--" + name, type=int)
    parser.add_argument("--schedule-conservativeness", type=float, default=1.0)
    parser.add_argument("--disable-radix-cache", action="store_true")
    found = ServerArgs(parser.parse_args(argv))
    found.random_seed = hash(object())
    return found
"""


def write_sglang(folder: Path, version: str, *, resolves_at_once: bool = False) -> Path:
    """Writes the package and its metadata.

    Args:
        folder: Where; a folder for `PYTHONPATH`.
        version: SGLang's.
        resolves_at_once: Whether the parser's result is resolved already, as before 0.5.23.
    """
    package = folder / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "__init__.py").write_text(f"__version__ = {version!r}\n")
    (package / "srt" / "__init__.py").write_text("")
    resolve = "_resolve" if resolves_at_once else "resolve_once"
    before = "self._resolve()" if resolves_at_once else ""
    text = _SERVER_ARGS.replace("{before}", before).replace("{resolve}", resolve)
    (package / "srt" / "server_args.py").write_text(text)
    metadata = folder / f"sglang-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    return folder
