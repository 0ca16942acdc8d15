"""Answers feature look-ups that arrive over links: which values a request gets, and how fresh they are.

Path of a look-up: servicer (frame in) -> lookup (joins the round trips of this loop turn) -> cache, stores ->
feature_view (rows to columns) -> servicer (frame out). views keeps the live feature_views/ of etcd.
"""
