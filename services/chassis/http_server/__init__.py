"""HTTP/1.1 on the service's own event loop: `HttpServer` serves the `Routes` of services.chassis.http.

The way of a request: `Connection` gets bytes -> `KnownHeads` knows the head, or `read_head` reads it with llhttp -> the
body is gathered, bounded -> `Exchange` -> a hot route's callback, or a task that awaits the handler -> the answer.
"""
