"""The command line: `turnout up` runs a whole mesh on one machine; the other commands ask and steer a running one.

`turnout up`: plan the processes (plan), train or reuse the demo (demo.train), start etcd and every service
(processes, supervise), write the demo's keys (demo.keys), wait until the router says ready (readiness), play held-out
rows (demo.play), print what came of it (demo.tables), then keep everything alive until told to stop.
"""
