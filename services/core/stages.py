"""The stages of a request, in order: the same names in metrics, spans, logs and answer metadata."""

PARSE, AUTH, ROUTE, FEATURES, LINK = "parse", "auth", "route", "features", "link"
QUEUE, ASSEMBLE, WORKER_WAIT = "queue", "assemble", "worker_wait"
H2D, COMPUTE, D2H, SCATTER = "h2d", "compute", "d2h", "scatter"
SERIALIZE, TOTAL = "serialize", "total"

ROUTER_BEFORE = (PARSE, AUTH, ROUTE, FEATURES)
# The order of Reply.stages_ns.
REMOTE = (QUEUE, ASSEMBLE, WORKER_WAIT, H2D, COMPUTE, D2H, SCATTER)
STAGES = (*ROUTER_BEFORE, LINK, *REMOTE, SERIALIZE)
