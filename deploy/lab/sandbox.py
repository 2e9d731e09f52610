"""Runs a command in name spaces of its own, so that all it makes there ends with it.

Network devices, network name spaces, mounts and processes live in one private PID, network and
mount name space. When its first process ends, however it ends, the kernel removes everything in
it: nothing has to be undone by hand, also after Ctrl-C, SIGKILL or a crash. Only the control
groups of the CPU quotas (cpu_quota.py) lie outside.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
GRACE_SECONDS = 10


class LabError(Exception):
    """Something the user can change; one line."""


def missing_for_lab():
    """Why no lab can run here, as one line; None if one can."""
    if os.geteuid() != 0:
        return "needs root (name spaces, veth, tc); without it: runnel-central train --link-mbps"
    for tool in ("unshare", "nsenter", "ip", "tc"):
        if shutil.which(tool) is None:
            return f"needs {tool} (Debian: util-linux, iproute2)"
    probe = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c",
         "ip link add lab-a type veth peer name lab-b && tc qdisc add dev lab-a root tbf rate 1mbit burst 3000 "
         "limit 30000"],
        capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        return "this kernel or container has no network name spaces, veth or tbf: " + \
            (probe.stderr.strip().splitlines() or ["unshare failed"])[-1]
    return None


def die_with_parent():
    """In a child before exec: it is killed when the thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Interrupted(Exception):
    def __init__(self, number):
        super().__init__(f"signal {number}")
        self.number = number


def interruptible():
    """SIGINT and SIGTERM raise Interrupted from now on."""
    def raise_it(number, _frame):
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)
        raise Interrupted(number)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, raise_it)


def run_inside(arguments, environment=None):
    """Runs this Python with `arguments` as the first process of a fresh sandbox; its exit code.

    A signal to us (Interrupted) is passed on; the sandbox then has GRACE_SECONDS to end in order.
    """
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child=SIGKILL",
               "--mount-proc", sys.executable, "-B"] + arguments
    child = subprocess.Popen(command, start_new_session=True, preexec_fn=die_with_parent,
                             env=environment)
    try:
        return child.wait()
    except Interrupted as interrupt:
        # unshare itself waits on; its child is the one that takes the signal.
        os.killpg(child.pid, interrupt.number)
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        raise
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
