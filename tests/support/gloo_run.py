#!/usr/bin/env python3
"""Starts processes as `mpirun -n N PROGRAM ARGUMENTS...` does, but with torchrun's variables, for the transport gloo.

Takes mpirun's place in tests: options of Open MPI are accepted and ignored. Unlike mpirun it does not end processes at
once when one has failed: they must notice by themselves, and those that have not after five seconds are killed. Ends with
the exit code of the first process that failed.
"""
import os
import random
import socket
import subprocess
import sys
import threading

PATIENCE_S = 5
VALUES = {"--bind-to": 1, "--mca": 2, "--host": 1}  # how many arguments follow an option


def free_port():
    # Below those that the kernel gives to connections: one of a test beside this one would take it before rank 0 does.
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def main(arguments):
    size = 1
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option == "-n":
            size = int(arguments.pop(0))
        else:
            del arguments[:VALUES.get(option, 0)]
    job = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_"))}
    processes = [subprocess.Popen(arguments, env={**environment, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)})
                 for rank in range(size)]
    killer = threading.Timer(PATIENCE_S, lambda: [process.kill() for process in processes])
    killer.daemon = True
    failed = 0
    for _ in range(size):
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        processes = [process for process in processes if process.pid != pid]
        if code != 0 and failed == 0:
            failed = 128 - code if code < 0 else code
            killer.start()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
