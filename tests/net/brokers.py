"""Real NATS servers on loopback, alone or as a cluster, for tests and examples."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from random import Random


def nats_server():
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


def free_ports(count):
    """Ports the system does not give to outgoing connections: nobody else takes them, and a restart finds
    its own free."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    dice, sockets = Random(os.urandom(8)), []
    try:
        while len(sockets) < count:
            each = socket.socket()
            try:
                each.bind(("127.0.0.1", dice.randrange(10_000, max(lowest, 20_000))))
                sockets.append(each)
            except OSError:
                each.close()
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Broker:
    """One or more servers; `kill` and `restart` take a server's number."""

    def __init__(self, folder, servers, settings):
        self.folder = folder
        self.settings = settings
        ports = free_ports(3 * servers)
        self.client_ports, self.cluster_ports, self.monitor_ports = (ports[i::3] for i in range(3))
        self.processes = [None] * servers
        self.urls = [f"nats://127.0.0.1:{port}" for port in self.client_ports]

    def start(self, number):
        command = [nats_server(), "-a", "127.0.0.1", "-p", str(self.client_ports[number]), "-js"]
        command += ["-sd", str(self.folder / f"store-{number}"), "-m", str(self.monitor_ports[number])]
        if self.settings:
            file = self.folder / "server.conf"
            file.write_text(self.settings)
            command += ["-c", str(file)]
        if len(self.processes) > 1:
            others = [port for port in self.cluster_ports if port != self.cluster_ports[number]]
            command += ["--cluster_name", "tests", "-n", f"server-{number}"]
            command += ["--cluster", f"nats://127.0.0.1:{self.cluster_ports[number]}"]
            command += ["--routes", ",".join(f"nats://127.0.0.1:{port}" for port in others)]
        log = (self.folder / f"server-{number}.log").open("ab")
        self.processes[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def wait_until_ready(self, seconds=30):
        end = time.monotonic() + seconds
        for port in self.monitor_ports:
            while True:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2):
                        break
                except (urllib.error.URLError, OSError):
                    if time.monotonic() > end:
                        raise TimeoutError(f"no NATS server became ready; see {self.folder}") from None
                    time.sleep(0.05)

    def kill(self, number):
        os.kill(self.processes[number].pid, signal.SIGKILL)
        self.processes[number].wait()

    def stop(self):
        for process in self.processes:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


@contextmanager
def broker(folder, servers=1, settings=""):
    """`settings` are those of a server's file, for what has no place on its command line."""
    folder.mkdir(parents=True, exist_ok=True)
    running = Broker(folder, servers, settings)
    try:
        for number in range(servers):
            running.start(number)
        running.wait_until_ready()
        yield running
    finally:
        running.stop()
