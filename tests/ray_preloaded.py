"""Starts actors of a Ray cluster without importing torch in each: importable as ``ray_preloaded`` here.

That import takes longer than most tests with an actor. While `forking_workers` lasts, Ray's workers are forked from one process that has
imported torch, but nothing of rlpyt, nor Ray, which reads its environment when it is imported.
"""

import contextlib
import json
import os
import runpy
import signal
import socket
import sys

_PYTHON = sys.executable
_SOCKET = "RLPYT_TESTS_PRELOADED"


@contextlib.contextmanager
def forking_workers():
    """Make a cluster started meanwhile fork its workers. Ray takes the name of the interpreter from `sys.executable`."""
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = os.environ[_SOCKET] = os.path.join(directory, "socket")
        command = os.path.join(directory, "python")
        with open(command, "w") as file:
            file.write(f'#!/bin/sh\ncase "$*" in *_worker.py*) exec {_PYTHON} -SE {__file__} "$@";; esac\nexec {_PYTHON} "$@"\n')
        os.chmod(command, 0o755)
        server = subprocess.Popen([_PYTHON, __file__, "--serve", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        server.stdout.readline()
        sys.executable = command
        try:
            yield
        finally:
            sys.executable = _PYTHON
            server.stdin.close()  # It ends also if this process is killed.
            server.wait()


def _start(words):
    """Have a process forked that does what ``python *words`` does, with the same environment, files and directory; end as it does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(os.environ[_SOCKET])
        told = json.dumps([words, dict(os.environ), os.getcwd()]).encode()
        socket.send_fds(connection, [len(told).to_bytes(8, "little")], [0, 1, 2])
        connection.sendall(told)
        pid = int.from_bytes(_read(connection, 8), "little")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: os.kill(pid, number))
        os._exit(int.from_bytes(_read(connection, 8) or b"\1", "little"))


def _read(connection, n):
    data = b""
    while len(data) < n and (more := connection.recv(n - len(data))):
        data += more
    return data


def _serve(path):
    """Fork a process for each connection, and return in that process what it is told: words, environment, directory."""
    import selectors

    import forking
    import gymnasium  # noqa: F401
    import numba  # noqa: F401
    import torch  # noqa: F401

    forking.make_forks_cheap()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    wake, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting, ready = {}, selectors.DefaultSelector()
    ready.register(listener, selectors.EVENT_READ)
    ready.register(wake, selectors.EVENT_READ)
    ready.register(0, selectors.EVENT_READ)
    os.write(1, b"ready\n")
    while True:
        for key, _ in ready.select():
            if key.fd == 0:
                os._exit(0)
            elif key.fileobj is listener:
                connection, _ = listener.accept()
                length, fds, *_ = socket.recv_fds(connection, 8, 3)
                told = json.loads(_read(connection, int.from_bytes(length, "little")))
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for opened in (listener, ready, connection, *waiting.values()):
                        opened.close()
                    for fd, given in enumerate(fds):
                        os.dup2(given, fd)
                for fd in (*fds, wake, wakes)[: None if pid == 0 else 3]:
                    os.close(fd)
                if pid == 0:
                    return told
                connection.sendall(pid.to_bytes(8, "little"))
                waiting[pid] = connection
            else:
                os.read(wake, 4096)
        while waiting:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            with contextlib.suppress(OSError), waiting.pop(pid) as connection:
                connection.sendall((os.waitstatus_to_exitcode(status) % 256).to_bytes(8, "little"))


def _become(words, environment, directory):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.executable = os.path.join(os.path.dirname(environment[_SOCKET]), "python")
    sys.argv = words[words[0] == "-u" :]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        _become(*_serve(sys.argv[2]))
    else:
        _start(sys.argv[1:])
