"""Two hosts on one machine: network namespaces that are joined by a wire, with a data rate if wanted.

Needs Linux, `ip`, `tc`, `unshare` and `nsenter`. enter_own_network() makes the calling program the root of namespaces
of its own where it is not root.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

NAMES = ("a", "b")
ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2"}
DEVICES = {"a": "wire-a", "b": "wire-b"}
LONGEST_S = 1800  # of a run


def bytes_per_ms(rate):
    """Of a data rate as tc writes it."""
    number, unit = re.fullmatch(r"(\d+)(kbit|mbit|gbit)", rate).groups()
    return int(number) * {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}[unit] // 8000


def why_not():
    """Why two hosts cannot be made here; none if they can."""
    missing = [tool for tool in ("ip", "tc", "unshare", "nsenter") if not shutil.which(tool)]
    if missing:
        return f"no {missing[0]} (Debian's packages iproute2 and util-linux)"
    try:
        TwoHosts(rate="1gbit").close()
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip()
        return f"network namespaces with a wire cannot be made here: {said}"
    return None


def enter_own_network():
    """Starts the program again as the root of a user namespace, where it is not root and may do so."""
    own = ["unshare", "--user", "--map-root-user", "--net"]
    if os.geteuid() == 0 or not shutil.which("unshare"):
        return
    if subprocess.run([*own, "true"], capture_output=True).returncode == 0:
        os.execvp(own[0], [*own, sys.executable, *sys.argv])


class TwoHosts:
    """The hosts `a` and `b`. They have one file system, one clock and names of their own; nothing but the wire leads
    out of them. They end with this object, or with the process that made it."""

    def __init__(self, rate=None):
        """`rate` as tc writes it, `100mbit`; none: as fast as the machine. No more than what a wire of that rate carries
        in a millisecond may pass at once."""
        self._holders = {}
        try:
            for name in NAMES:
                # cat ends when this process does, and answers as soon as the namespaces are there.
                holder = subprocess.Popen(["unshare", "--net", "--uts", "cat"], stdin=subprocess.PIPE, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=1)
                self._holders[name] = holder
                holder.stdin.write("ready\n")
                if not holder.stdout.readline():
                    raise OSError(holder.stderr.read())
                self._run(name, "hostname", f"host-{name}")
            self._run("a", "ip", "link", "add", DEVICES["a"], "type", "veth", "peer", "name", DEVICES["b"])
            self._run("a", "ip", "link", "set", DEVICES["b"], "netns", str(self._holders["b"].pid))
            for name in NAMES:
                self._run(name, "ip", "address", "add", ADDRESSES[name] + "/24", "dev", DEVICES[name])
                self._run(name, "ip", "link", "set", "lo", "up")
                self._run(name, "ip", "link", "set", DEVICES[name], "up")
                if rate:
                    self._run(name, "tc", "qdisc", "add", "dev", DEVICES[name], "root", "tbf", "rate", rate, "burst",
                              str(bytes_per_ms(rate)), "latency", "200ms")
        except BaseException:
            self.close()
            raise

    def close(self):
        """Kills what still runs on the hosts."""
        for name in self._holders:
            while left := self.processes(name):
                for process in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                time.sleep(0.005)
        for holder in self._holders.values():
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()
            holder.stderr.close()
        self._holders = {}

    def command(self, name, command):
        """`command` on a host."""
        return ["nsenter", "--target", str(self._holders[name].pid), "--net", "--uts", *command]

    def run(self, commands, environment):
        """Runs a command on each host, as the processes of one job that meet at host `a`, and returns what they print.
        Exits if one fails."""
        runs = []
        for rank, (name, command) in enumerate(zip(NAMES, commands, strict=True)):
            own = {"RANK": str(rank), "WORLD_SIZE": str(len(NAMES)), "MASTER_ADDR": ADDRESSES["a"],
                   "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": DEVICES[name]}
            # So that none goes on when this program is killed.
            bound = ["setpriv", "--pdeathsig", "KILL", *self.command(name, command)]
            runs.append(subprocess.Popen(bound, text=True, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         env={**os.environ, **self.environment(name), **own, **environment}))
        said = [run.communicate(timeout=LONGEST_S) for run in runs]
        for run, (_, errors) in zip(runs, said, strict=True):
            if run.returncode != 0:
                raise SystemExit(f"{' '.join(run.args)}\nended with {run.returncode}:\n{errors[-3000:]}")
        return "".join(out for out, _ in said)

    def processes(self, name):
        """The living processes on a host."""
        found, own = [], self._network_of(self._holders[name].pid)
        for process in map(int, filter(str.isdigit, os.listdir("/proc"))):
            if process != self._holders[name].pid and own and self._network_of(process) == own:
                found.append(process)
        return found

    def _network_of(self, process):
        """None of a process that has ended."""
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{process}/ns/net")

    def environment(self, name):
        """Beyond that of this process. Penstock takes processes that see one boot of the kernel for one host."""
        return {"PENSTOCK_HOST": name}

    def launch_agent(self, path):
        """Writes a program that takes the place of ssh for mpirun: it starts a command on the host of an address."""
        with open(path, "w") as file:
            file.write("#!/bin/sh\n# ADDRESS COMMAND...\naddress=$1\nshift\ncase $address in\n")
            for name in NAMES:
                command = " ".join(self.command(name, ["env", *(f"{key}={value}" for key, value in
                                                                self.environment(name).items()), "sh", "-c"]))
                file.write(f'{ADDRESSES[name]}) exec {command} "$*" ;;\n')
            file.write("esac\nexit 1\n")
        os.chmod(path, 0o755)
        return path

    def cut(self):
        """Cuts the wire. What is sent disappears, and nobody is told."""
        self._run("a", "ip", "link", "set", DEVICES["a"], "down")

    def mend(self):
        self._run("a", "ip", "link", "set", DEVICES["a"], "up")

    def bytes_sent(self, name):
        """By a host over the wire, since its beginning."""
        text = self._run(name, "ip", "-statistics", "link", "show", DEVICES[name])
        return int(re.search(r"TX:.*\n\s*(\d+)", text)[1])

    def _run(self, name, *command):
        return subprocess.run(self.command(name, command), check=True, capture_output=True, text=True).stdout
