from services.feature_proxy.cache import Cache


def put(cache: Cache, entity: bytes, blob: bytes, now: float = 0) -> None:
    cache.put("memory://m", "v", entity, blob, now)


def held(cache: Cache, *entities: bytes, view: str = "v", store: str = "memory://m", now: float = 0) -> object:
    return cache.get_many(store, view, entities, now)


def test_a_blob_is_held_for_ttl_and_no_longer() -> None:
    cache = Cache(ttl_s=1, max_entries=10, max_bytes=100)
    put(cache, b"1", b"old", now=0)
    put(cache, b"1", b"new", now=5)

    assert held(cache, b"1", b"2", now=5.9) == {b"1": b"new"}
    assert held(cache, b"1", now=6.0) == {}
    assert len(cache) == 0


def test_views_and_stores_do_not_share_entities() -> None:
    cache = Cache(ttl_s=1, max_entries=10, max_bytes=100)
    put(cache, b"1", b"x")

    assert held(cache, b"1", view="w") == {}
    assert held(cache, b"1", store="memory://n") == {}


def test_entries_and_bytes_are_bounded_and_the_longest_held_leave() -> None:
    cache = Cache(ttl_s=1, max_entries=3, max_bytes=10)
    for i in range(4):
        put(cache, b"%d" % i, b"xx")

    assert held(cache, b"0", b"1", b"2", b"3") == {b"1": b"xx", b"2": b"xx", b"3": b"xx"}
    put(cache, b"big", b"x" * 8)

    assert held(cache, b"1", b"2", b"3") == {b"3": b"xx"}
    assert cache.size_bytes == 10


def test_a_blob_over_the_whole_bound_and_a_ttl_of_0_are_not_held() -> None:
    for cache in (Cache(ttl_s=1, max_entries=3, max_bytes=4), Cache(ttl_s=0, max_entries=3, max_bytes=100)):
        put(cache, b"1", b"xxxxx")

        assert (len(cache), cache.size_bytes) == (0, 0)
