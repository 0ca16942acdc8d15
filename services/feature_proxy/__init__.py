"""Answers feature look-ups that arrive over links: which values a request gets, and how fresh they are.

A look-up: servicer (frame in) -> lookup -> round_trip (all that this loop turn wants of a view) -> cache, stores
-> feature_view (rows to columns) -> servicer (frame out). views and live_views keep what etcd says of the views.
"""
