"""`ab`: the code of two revisions, or two candidates of one workload, measured against each other.

Two trees are written below `.tirbench/ab/`, each side is loaded, expanded and rendered from its own, and one
worker a placement seed holds both (`harness.pairs`). `judge` says after every stage what it must still see.
"""

from tirbench.comparing.ask import Asked
from tirbench.comparing.price import prices
from tirbench.comparing.trial import compare, exit_code

__all__ = ["Asked", "compare", "exit_code", "prices"]
