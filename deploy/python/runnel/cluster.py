"""Devices that dial in to this host."""

import json

from . import programs
from .errors import InputError


class Cluster:
    """Worker daemons of other devices: `fit(..., cluster=Cluster("192.168.1.10:7000", workers=3))` waits for three of them.

    `address` is this host's, which the devices dial. A device joins once: `token("pi-1")` is what `runnel-worker --join` takes.
    """

    def __init__(self, address, workers=1):
        if not str(address).rpartition(":")[2].isdigit() or ":" not in str(address):
            raise InputError(f"address {address} is not HOST:PORT, as in 192.168.1.10:7000")
        self.address = address
        self.workers = workers

    def flags(self):
        """The flags of `runnel-central train`."""
        return {"listen": self.address, "workers": self.workers}

    def init(self):
        """Makes this host's certificates, once; from then on every stream is encrypted."""
        return programs.run(["init"])

    def token(self, name):
        """TOKEN@HOST:PORT for `runnel-worker --join`, good for one device, once, for one hour."""
        host, _, port = self.address.rpartition(":")
        return f"{programs.run(['token', '--name', name]).strip()}@{host}:{int(port) + 1}"

    def devices(self):
        """Who takes part in the run that is going on, as dicts."""
        return json.loads(programs.run(["devices", "--json", "--central", self.address]))
