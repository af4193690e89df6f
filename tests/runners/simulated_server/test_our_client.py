"""The load generator's client reads all kinds of streams."""

import asyncio

import orjson
import pytest

from runners.load.http.client import ClientSettings, LoadClient
from runners.load.http.in_flight import InFlightRequest

TOKENS = 95


def flown(served, **keys):
    sampling = {"max_new_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
    body = {"text": "Read all of me.", "sampling_params": sampling, "stream": True}
    flight = InFlightRequest(prompt="p", body=orjson.dumps(body))

    async def fly():
        url = f"http://127.0.0.1:{served.port}"
        async with LoadClient(ClientSettings(url, 1, 60.0, **keys)) as client:
            await client.generate(flight)

    asyncio.run(fly())
    return flight


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--stream-interval", "10"),
        ("--incremental-streaming-output", "--stream-interval", "10"),
    ],
    ids=["plain", "interval", "increments"],
)
def test_a_stream_of_any_kind(start, speculation, flags):
    served = start(*speculation(3), *flags).wait_ready()
    whole = served.generate("Read all of me.", TOKENS).json()
    flight = flown(served)
    assert flight.error is None
    assert flight.tokens == TOKENS
    answer = flight.answer
    assert answer.completion_tokens == TOKENS
    assert answer.finish_reason == "length"
    assert answer.verify_calls == whole["meta_info"]["spec_verify_ct"]
    assert list(answer.histogram) == whole["meta_info"]["spec_correct_drafts_histogram"]
    assert list(answer.output_ids) == whole["output_ids"]
    assert answer.text == whole["text"]
    if "--stream-interval" in flags:
        steps = [b - a for a, b in zip(flight.chunk_tokens, flight.chunk_tokens[1:], strict=False)]
        assert all(step >= 10 for step in steps[:-1])


def test_a_request_of_an_open_loop(start):
    served = start().wait_ready()
    flight = flown(served, headers=(("x-tuner-arrival", "open"),))
    assert flight.error is None
    assert flight.tokens == TOKENS
