"""Why calls are refused: the closed set of words that turnout_refused_calls counts by."""

ANONYMOUS = "anonymous"  # nothing was sent that proves anything
BAD = "bad_credentials"  # not what a key or token looks like, or not signed as it must be
UNKNOWN = "unknown_credentials"
EXPIRED = "expired"
GUESSING = "guessing"  # too many unknown credentials from one address
KEYS = "no_signing_keys"  # the issuer's keys are not there, or not this one yet
DISABLED = "disabled"
ROLE = "role"
MODEL = "model"
REQUESTS = "requests_per_s"
ROWS = "rows_per_s"
CONCURRENCY = "concurrency"
