"""The router picks who answers: which version and replica serve a request, and what is mirrored.

A request: grpc_front or rest/ (bytes in) -> codec (Inference) -> dispatcher (authorise, choose, check, features, send)
-> the replica's link -> dispatcher (retry or answer) -> codec (bytes out) -> mirror and metrics, after the answer.
"""
