"""CPU quotas of the lab's hosts: one control group each, version 1 or 2, whichever is there."""

import os
import time

from sandbox import LabError

PREFIX = "runnel-lab-"
# Short, so that a throttled host is a slow one, not one that stands still for a long while.
PERIOD_US = 10_000
# The quota is what holds a host back, not how many others want the processor.
SHARES = 1 << 15
WEIGHT = 10_000


def _root():
    """(folder, version) of the CPU controller."""
    for folder in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"):
        if os.path.exists(folder + "/cpu.cfs_quota_us") or os.path.exists(folder + "/cpu.shares"):
            return folder, 1
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return "/sys/fs/cgroup", 2
    raise LabError("no CPU control groups here (/sys/fs/cgroup): leave the CPU quotas out")


def _write(path, text):
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from error


def _remove(folder):
    for name in sorted(os.listdir(folder)):
        if os.path.isdir(f"{folder}/{name}"):
            os.rmdir(f"{folder}/{name}")
    os.rmdir(folder)


def remove_stale():
    """Removes the empty groups of labs whose process was killed."""
    try:
        root, _ = _root()
    except LabError:
        return
    for name in os.listdir(root):
        if name.startswith(PREFIX) and not os.path.exists("/proc/" + name[len(PREFIX):]):
            try:
                _remove(f"{root}/{name}")
            except OSError:
                pass  # somebody else's, or gone meanwhile


class CpuQuotas:
    """Groups of this process's lab. `shares[i]`: processors that host i may use; 0: no limit."""

    def __init__(self, shares):
        self.root, self.version = _root()
        self.folder = f"{self.root}/{PREFIX}{os.getpid()}"
        os.mkdir(self.folder)
        try:
            self._fill(shares)
        except BaseException:
            self.remove()
            raise

    def _fill(self, shares):
        if self.version == 1:
            _write(self.folder + "/cpu.shares", str(SHARES))
        else:
            _write(self.root + "/cgroup.subtree_control", "+cpu")
            _write(self.folder + "/cpu.weight", str(WEIGHT))
            _write(self.folder + "/cgroup.subtree_control", "+cpu")
        for host, share in enumerate(shares):
            group = self.group(host)
            os.mkdir(group)
            if share <= 0:
                continue
            quota = max(1000, round(share * PERIOD_US))
            if self.version == 1:
                _write(group + "/cpu.cfs_period_us", str(PERIOD_US))
                _write(group + "/cpu.cfs_quota_us", str(quota))
            else:
                _write(group + "/cpu.max", f"{quota} {PERIOD_US}")

    def group(self, host):
        return f"{self.folder}/host-{host}"

    def statistics(self, host):
        """cpu.stat of a host as a dictionary: how often, and how long, it was held back."""
        try:
            with open(self.group(host) + "/cpu.stat", encoding="ascii") as file:
                return {key: int(value) for key, value in (line.split() for line in file)}
        except OSError:
            return {}

    def remove(self):
        for _ in range(100):
            try:
                _remove(self.folder)
                return
            except FileNotFoundError:
                return
            except OSError:  # its last process is just going
                time.sleep(0.05)


def join(group):
    """In a child before exec."""
    _write(group + "/cgroup.procs", "0")
