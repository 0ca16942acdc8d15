"""Turnout's services, each a process of its own: see docs/architecture.md for the way of a request."""
