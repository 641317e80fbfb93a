"""The server in a network of its own: a second machine scans it, and nothing outside answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import epochal

SCRIPT = """
import json, subprocess, sys, threading
from pathlib import Path
from epochal.web.server import ServeOptions, WebServer

def do(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout

wait = ["unshare", "--net", "sh", "-c", "echo ready; exec cat"]
other = subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
other.stdout.readline()
inside = ["nsenter", "--target", str(other.pid), "--net"]
try:
    do("ip", "link", "set", "lo", "up")
    do("ip", "link", "add", "here", "type", "veth", "peer", "name", "there")
    do("ip", "link", "set", "there", "netns", str(other.pid))
    do("ip", "address", "add", "10.9.8.1/24", "dev", "here")
    do("ip", "link", "set", "here", "up")
    do(*inside, "ip", "address", "add", "10.9.8.2/24", "dev", "there")
    do(*inside, "ip", "link", "set", "there", "up")
except subprocess.CalledProcessError as error:
    print(json.dumps({"skip": error.stderr}))
    raise SystemExit from None
SCAN = '''
import socket, sys
found = []
for port in map(int, sys.argv[1:]):
    with socket.socket() as one:
        one.settimeout(20)
        if one.connect_ex(("10.9.8.1", port)) == 0:
            found.append(port)
print(*found)
'''
ports, servers = {}, []
for name, options in (("own", ServeOptions(port=0)), ("lan", ServeOptions(port=0, is_lan=True))):
    server = WebServer(Path(sys.argv[1]), options)
    thread = threading.Thread(target=server.run)
    thread.start()
    servers.append((server, thread))
    ports[name] = server.socket.getsockname()[1]
seen = do(*inside, sys.executable, "-S", "-c", SCAN, *map(str, ports.values())).split()
for server, thread in servers:
    server.uvicorn.should_exit = True
    thread.join()
other.stdin.close()
other.wait()
print(json.dumps({"ports": ports, "seen": list(map(int, seen))}))
"""


def test_another_machine_reaches_only_a_server_that_allows_it(tmp_path: Path) -> None:
    """Two network namespaces with a cable between them; neither has a way out."""
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing or sys.platform != "linux":
        pytest.skip(f"needs {', '.join(missing) or 'Linux'}")
    environment = os.environ | {"PYTHONPATH": str(Path(epochal.__file__).parents[1])}
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        [*command, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=300
    )
    if "unshare failed" in done.stderr:
        pytest.skip("this user may not make network namespaces")
    found = json.loads(done.stdout or "{}")
    if "skip" in found:
        pytest.skip(f"no cable between namespaces: {found['skip']}")
    assert done.returncode == 0, done.stderr
    assert found["seen"] == [found["ports"]["lan"]]
