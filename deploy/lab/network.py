"""The lab's network, inside a sandbox (sandbox.py): one name space a host, one link a pair.

Every pair of hosts has a veth pair of its own, shaped at both ends by a token bucket (tc tbf), so
each link has its own bandwidth and each direction apart, as a planner counts them. A host has one
data address, reached over the link to whoever asks. Control streams (commands, layers, snapshots)
share the links. With --no-shared-control they run over a star of unshaped links to host 0 beside
them: what is measured then is the tensors' traffic alone.

Hosts on a medium have no links of their own. All that they send goes through one more veth pair, the
air, between two name spaces that route: one bucket for everybody and both directions.
"""

import subprocess

from sandbox import LabError

MTU = 1500
# A bucket that holds two full packets: no burst beyond what a packet needs.
BURST_BYTES = 2 * (MTU + 14)
# What may wait in front of a link: a fifth of a second, but never less than a window needs.
QUEUE_SECONDS = 0.2
LEAST_QUEUE_BYTES = 32 * (MTU + 14)
# What phones, Pis and laptops run with, whatever this machine is set to: BBR takes the first small
# packets, which a bucket lets pass at once, for a fast link and then loses whole windows.
# Where the kernel does not let a name space have the first, the second: on such links alike.
CONGESTION_CONTROL = ("cubic", "reno")


def data_address(host):
    return f"10.93.0.{host + 1}"


def control_address(host):
    return f"10.94.0.{host + 1}"


def name_space(host):
    return f"/run/netns/h{host}"


def in_host(host, command):
    """The command line that runs `command` in a host."""
    return ["nsenter", f"--net={name_space(host)}"] + command


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip() or 'failed'}")


def _ip(host, *arguments):
    _run("ip", "-n", f"h{host}", *arguments)


def _pair(a, b, kind):
    """A veth pair between two hosts; the device of a host carries the other's number."""
    _run("ip", "link", "add", f"{kind}-a", "mtu", str(MTU), "type", "veth", "peer", "name",
         f"{kind}-b", "mtu", str(MTU))
    for end, host, other in (("a", a, b), ("b", b, a)):
        _run("ip", "link", "set", f"{kind}-{end}", "netns", f"h{host}")
        _ip(host, "link", "set", f"{kind}-{end}", "name", f"{kind}{other}")
        # Packets as large as on a wire, so that the bucket counts each one's header.
        _ip(host, "link", "set", f"{kind}{other}", "gso_max_segs", "1")
        _ip(host, "link", "set", f"{kind}{other}", "up")


def _route(a, b, kind, address):
    for host, other in ((a, b), (b, a)):
        _ip(host, "route", "add", f"{address(other)}/32", "dev", f"{kind}{other}",
            "src", address(host))


def _limit(space, device, mbps):
    if mbps <= 0:
        subprocess.run(["tc", "-n", space, "qdisc", "del", "dev", device, "root"],
                       capture_output=True, check=False)
        return
    queue = max(LEAST_QUEUE_BYTES, int(mbps * 1e6 / 8 * QUEUE_SECONDS))
    _run("tc", "-n", space, "qdisc", "replace", "dev", device, "root", "tbf", "rate",
         f"{round(mbps * 1e6)}bit", "burst", str(BURST_BYTES), "limit", str(queue))


def shape(host, other, mbps):
    """What `host` sends to `other` from now on; 0: unlimited. Not for hosts on a medium."""
    _limit(f"h{host}", f"data{other}", mbps)


def shape_medium(number, mbps):
    """What the hosts of a medium send together from now on; 0: unlimited."""
    _limit(f"m{number}send", "air", mbps)


# Of every veth pair of a medium: the end that sends and the one that receives.
SENDER_MAC, RECEIVER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"


def _one_way(sender, sending, receiver, receiving):
    """A veth pair that frames cross in one direction only."""
    _run("ip", "link", "add", "way-a", "mtu", str(MTU), "address", SENDER_MAC, "type", "veth",
         "peer", "name", "way-b", "mtu", str(MTU), "address", RECEIVER_MAC)
    for end, space, name in (("a", sender, sending), ("b", receiver, receiving)):
        _run("ip", "link", "set", f"way-{end}", "netns", space)
        _run("ip", "-n", space, "link", "set", f"way-{end}", "name", name)
        _run("ip", "-n", space, "link", "set", name, "gso_max_segs", "1")
        _run("ip", "-n", space, "link", "set", name, "up")


def _route_one_way(space, address, device, *more):
    """Nobody asks who has the address: the answer would have to come back over the same pair."""
    _run("ip", "-n", space, "route", "add", f"{address}/32", "dev", device, *more)
    _run("ip", "-n", space, "neigh", "replace", address, "lladdr", RECEIVER_MAC, "dev", device,
         "nud", "permanent")


def _accept_from_anywhere(space, forward):
    """What comes in over one pair is answered over another one."""
    paths = ["net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"]
    if forward:
        paths.append("net.ipv4.ip_forward=1")
    for path in paths:
        key, value = path.split("=")
        _run("nsenter", f"--net=/run/netns/{space}", "sh", "-c",
             f"echo {value} > /proc/sys/{key.replace('.', '/')}")


def _medium(number, members, mbps):
    sends, receives = f"m{number}send", f"m{number}recv"
    for space in (sends, receives):
        _run("ip", "netns", "add", space)
        _accept_from_anywhere(space, forward=True)
        _run("ip", "-n", space, "link", "set", "lo", "up")
    _one_way(sends, "air", receives, "air")
    for host in members:
        _accept_from_anywhere(f"h{host}", forward=False)
        _one_way(f"h{host}", f"up{number}", sends, f"from{host}")
        _one_way(receives, f"to{host}", f"h{host}", f"down{number}")
        _route_one_way(sends, data_address(host), "air")
        _route_one_way(receives, data_address(host), f"to{host}")
        for other in members:
            if other != host:
                _route_one_way(f"h{host}", data_address(other), f"up{number}",
                               "src", data_address(host))
    shape_medium(number, mbps)


def bring_up(hosts, mbps, media=()):
    """`mbps(i, j)`: the rate of what host i sends to host j; 0: unlimited. `media`: {"hosts", "mbps"}
    of those that share."""
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")  # name spaces' names are ours alone
    for host in range(hosts):
        _run("ip", "netns", "add", f"h{host}")
        _ip(host, "link", "set", "lo", "up")
        first, second = (f"echo {name} > /proc/sys/net/ipv4/tcp_congestion_control"
                         for name in CONGESTION_CONTROL)
        _run(*in_host(host, ["sh", "-c", f"({first}) 2>/dev/null || {second}"]))
        for address in (data_address(host), control_address(host)):
            _ip(host, "addr", "add", f"{address}/32", "dev", "lo")
    for a in range(hosts):
        for b in range(a + 1, hosts):
            if any(a in medium["hosts"] and b in medium["hosts"] for medium in media):
                continue
            _pair(a, b, "data")
            _route(a, b, "data", data_address)
            shape(a, b, mbps(a, b))
            shape(b, a, mbps(b, a))
    for number, medium in enumerate(media):
        _medium(number, medium["hosts"], medium["mbps"])
    for host in range(1, hosts):
        _pair(0, host, "ctl")
        _route(0, host, "ctl", control_address)
