"""The demo: three models trained on data that ships inside scikit-learn, their keys, and requests that play.

train (in a process of its own) writes the model repository, the held-out rows and the feature rows; keys says what
etcd must hold; play sends the held-out rows; tables shows what came of it.
"""
