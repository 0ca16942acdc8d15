"""Who may call, what, where, and how much: one gate for every protocol.

A request's credentials -> credentials.Authenticator (who) -> gate.Access (may it: roles, models, limits). Callers come
from callers/CALLER in etcd; gate.admit is asked for every inference, gate.require for everything else.
"""
