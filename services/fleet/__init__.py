"""What operators do to a whole fleet through etcd: for the command line, and for a router that offers it."""
