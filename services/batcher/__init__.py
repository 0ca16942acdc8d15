"""The batcher: decides which requests share one launch, who waits, who is shed, and which endpoints of its pod exist.

A request: servicer (frame) -> intake (checked, bytes) -> queue -> policy (what leaves, when) -> collate -> worker's
link -> replies (rows scattered back). A batch that raises goes through search; one whose worker died, through suspects.
"""
