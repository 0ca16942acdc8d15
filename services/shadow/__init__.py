"""The shadow comparator: how a candidate version differs from what was served, off the path of every caller.

A mirror (a served request and its answer) comes in on a router's link: servicer.py -> runner.py queues it, or drops and
counts it -> the candidate's batcher runs it at the lowest priority -> comparator.py compares -> tally.py counts ->
report.py and metrics.py tell.
"""
