"""`make bench-batcher`: our batcher beside plain implementations of other servers' rules, through the whole mesh."""
