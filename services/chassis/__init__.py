"""What every service needs and none is about: config, errors, links, listeners, etcd, telemetry, lifecycle."""
