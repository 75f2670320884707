"""Runs a command as a service manager does: READY, watchdog and the end are waited for.

notified.py SOCKET COMMAND...: the datagram socket that the command is given as NOTIFY_SOCKET, and
the command, which is ended with SIGTERM when a line comes on standard input. Prints each state as
it comes, and ends as the command does.
"""

import os
import selectors
import signal
import socket
import subprocess
import sys

path, command = sys.argv[1], sys.argv[2:]
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(path)
os.chmod(path, 0o666)
environment = os.environ | {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000"}
process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
sources = selectors.DefaultSelector()
sources.register(manager, selectors.EVENT_READ)
sources.register(sys.stdin, selectors.EVENT_READ)
ended = os.pidfd_open(process.pid)
sources.register(ended, selectors.EVENT_READ)
while process.poll() is None:
    for key, _ in sources.select():
        if key.fileobj is manager:
            for line in manager.recv(4096).decode().splitlines():
                print(line, flush=True)
        elif key.fileobj is sys.stdin:
            sources.unregister(sys.stdin)
            process.send_signal(signal.SIGHUP if sys.stdin.readline() == "reload\n" else signal.SIGTERM)
            sources.register(sys.stdin, selectors.EVENT_READ)
sys.exit(process.returncode)
