"""Runnel for people who write Python: trains a torch module across the devices that you own.

    run = runnel.fit(module, x, y, workers=3, epochs=5)

Needs torch and numpy, and the programs `runnel-central` and `runnel-worker`.
"""

from .cluster import Cluster
from .errors import InputError, RunnelError
from .training import Run, fit

__all__ = ["Cluster", "InputError", "Run", "RunnelError", "fit"]
