"""The prefix cache compared with a list of all prompts."""

from hypothesis import given
from hypothesis import strategies as st

from runners.simulated_server.engine.prefix_cache import PrefixCache
from runners.simulated_server.engine.tokens import pack, unpack

prompts = st.lists(st.integers(0, 2), min_size=1, max_size=12)


def shared(a, b):
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count


@given(st.lists(prompts, max_size=12), prompts)
def test_match_finds_the_longest_prefix(known, asked):
    cache = PrefixCache()
    for ids in known:
        cache.insert(pack(ids))
    longest = max((shared(ids, asked) for ids in known), default=0)
    assert cache.match(pack(asked))[1] == longest
    assert cache.match(pack(asked))[1] == longest  # a match changes nothing
    # A tree holds every prefix once.
    assert cache.tokens == len({tuple(ids[: i + 1]) for ids in known for i in range(len(ids))})


@given(st.lists(prompts, min_size=1, max_size=10), st.integers(0, 20), st.data())
def test_held_prefixes_are_never_evicted(known, limit, data):
    cache = PrefixCache()
    held = data.draw(st.lists(st.sampled_from(known), max_size=3))
    nodes = []
    for ids in known:
        node = cache.insert(pack(ids))
        if ids in held:
            cache.hold(node)
            nodes.append(node)
    cache.shrink(limit)
    assert cache.tokens <= max(limit, cache.held)
    for ids in held:
        assert cache.match(pack(ids))[1] == len(ids)
    for node in nodes:
        cache.release(node)
    assert cache.held == 0
    cache.shrink(0)
    assert cache.tokens == 0


def test_least_recently_used_leaves_go_first():
    cache = PrefixCache()
    first, second = pack([1, 2, 3]), pack([1, 5, 6])
    cache.insert(first)
    cache.insert(second)
    cache.match(first)
    cache.shrink(3)
    assert (cache.match(first)[1], cache.match(second)[1]) == (3, 1)


def test_match_of_long_prompts_is_exact():
    cache = PrefixCache()
    ids = list(range(4000))
    cache.insert(pack(ids))
    for at in (0, 1, 1999, 2000, 3998, 3999):
        other = [*ids[:at], -1, *ids[at + 1 :]]
        assert cache.match(pack(other))[1] == at
    assert unpack(pack(ids)) == ids
