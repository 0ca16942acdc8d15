"""The runtime: which model versions this pod loads, and one watched process for each instance of them.

source (what the repository holds) + desired (what etcd says) -> wanted (pure) -> version_manager (acts)
-> generation (the instances of one artifact) -> supervisor (one worker process) -> worker (loads, warms up, runs).
control tells the pod's batcher which instances there are and where.
"""

import os

# Read when gRPC is first imported. Workers are forked and at once executed: gRPC's own handlers of a fork would only
# stop its threads, log, and now and then hang the child.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
