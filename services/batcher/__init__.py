"""The batcher: decides which requests share one launch, who waits, who is shed, and which endpoints of its pod exist.

A request: servicer (frame) -> lobby (door: who gets in; intake: bytes checked) -> queue -> policy (what leaves, when)
-> worker's link -> collate and replies (rows scattered back). When a batch raises or its worker dies, recovery says who
runs again; search finds the request that makes a batch raise.
"""
