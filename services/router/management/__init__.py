"""What operators may do over the network: load and unload models, change settings and routes.

The same for gRPC and REST, whose servicers and handlers only translate; all of it is written to etcd.
"""
