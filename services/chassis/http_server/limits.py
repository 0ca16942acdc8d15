"""What a caller may send, hold and take its time with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Times are whole seconds, kept within one more."""

    body_bytes: int  # of one body, inflated too
    connections: int = 8192
    head_bytes: int = 64 << 10
    target_bytes: int = 8 << 10  # path and query
    fields: int = 100
    bodies_at_once: int = 4  # of the largest size that may be half read at a time, all connections together
    head_s: int = 10  # from a head's first byte to its last
    body_s: int = 30  # from the head to the body's last byte
    idle_s: int = 75  # of a connection between two requests
    unread_s: int = 60  # that a caller may leave an answer unread
    linger_s: int = 10  # that what a refused caller still sends is read and dropped
