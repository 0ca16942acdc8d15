"""`make bench-runtime`: a call of a worker beside the bare framework call, and what a worker costs."""
