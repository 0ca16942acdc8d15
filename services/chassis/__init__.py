"""What every service needs and none is about: config, errors, links, listeners, etcd, telemetry, lifecycle."""

import os

# Before grpc is imported: else its core writes a line of its own, in no format of ours, for each failed TLS handshake.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
