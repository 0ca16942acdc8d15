"""What one request costs by each API: the reference workloads over gRPC, V2 binary, raw, V2 JSON and V1 JSON."""
