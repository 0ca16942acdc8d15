"""What a feature proxy is told when it starts."""

from pydantic import Field

from services.chassis.config import Address, ServiceConfig


class FeatureProxyConfig(ServiceConfig):
    link_address: Address = "127.0.0.1:8121"
    link_socket: str = ""  # the same link for callers on this host; empty = feature_proxy-INSTANCE.sock in data_dir
    # A value changed in a store is seen after this at the latest; 0 switches the cache off. Unknown entities are
    # never cached, and ttl_s of a view is judged at each look-up, from the cache too.
    cache_ttl_s: float = Field(default=0.25, ge=0, le=60)
    cache_max_entries: int = Field(default=65_536, ge=1)
    cache_max_bytes: int = Field(default=64 << 20, ge=1)
    max_in_flight: int = Field(default=4096, ge=1)  # look-ups; beyond it they are refused
    max_in_flight_rows: int = Field(default=262_144, ge=1)  # rows of all look-ups in flight
    max_lookup_rows: int = Field(default=16_384, ge=1)  # rows of one look-up, over all its views
    max_answer_bytes: int = Field(default=64 << 20, ge=1)  # values of one answer
    sqlite_queue: int = Field(default=64, ge=1)  # reads of one file that may wait for its thread
    redis_connections: int = Field(default=8, ge=1)  # to one server, opened as needed
    redis_connect_s: float = Field(default=1.0, gt=0)
    breaker_failures: int = Field(default=5, ge=1)  # in a row, before a view's store is left alone
    breaker_open_s: float = Field(default=0.5, gt=0)  # until one look-up may try it again
