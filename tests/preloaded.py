"""Runs scripts in processes that need not import torch: importable as ``preloaded`` here.

``run(script, *args)`` does what ``subprocess.run([sys.executable, script, *args])`` does, without the three or four seconds for imports:
the process is forked from one that has imported torch, numba, gymnasium and matplotlib, but nothing of rlpyt. That one is started when it
is needed, and ends with this process.
"""

import atexit
import functools
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading

_START = 120  # seconds, for the imports


def run(script, *args, timeout=280, cwd=None, **environment):
    """Run a script and wait for its end.

    Args:
        script: path of the script.
        args: its arguments.
        timeout: seconds after which it is killed, with all of its session.
        cwd: directory in which it runs.
        environment: variables besides those of this process.

    Returns:
        A `subprocess.CompletedProcess` with `stdout` and `stderr` as text.

    Raises:
        subprocess.TimeoutExpired: it has not ended in time.
    """
    with tempfile.TemporaryDirectory() as directory:
        outputs = [os.path.join(directory, name) for name in ("stdout", "stderr")]
        request = dict(args=[os.fspath(script), *map(str, args)], outputs=outputs, environment={**os.environ, **environment})
        _parent().send(dict(request, cwd=os.fspath(cwd or os.getcwd())))
        try:
            code = _parent().receive(timeout)
        except TimeoutError as error:
            _parent().kill_child()
            raise subprocess.TimeoutExpired(request["args"], timeout) from error
        stdout, stderr = (open(path, errors="replace").read() for path in outputs)
    return subprocess.CompletedProcess(request["args"], code, stdout, stderr)


@functools.cache
def _parent():
    return _Parent()


class _Parent:
    """The process from which others are forked. It is no child of this one, among whose children tests look for what is left behind."""

    def __init__(self):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        # Without a buffer: a second line in it, read together with the first one, would be invisible to `select`.
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        process = subprocess.Popen([sys.executable, __file__], env=environment, start_new_session=True, **pipes)
        self._requests, self._replies = process.stdin, process.stdout
        process.wait()  # It has forked.
        self._child = None
        if self._read(_START) != "ready":
            raise RuntimeError("The process from which scripts are forked has not started.")

    def send(self, request):
        self._requests.write(json.dumps(request).encode() + b"\n")
        self._child = self._read(_START)

    def receive(self, timeout):
        return self._read(timeout)

    def kill_child(self):
        os.killpg(self._child, signal.SIGKILL)
        self._read(_START)

    def _read(self, timeout):
        """Return what the process says next, a line at a time; TimeoutError if it does not in so many seconds."""
        if not select.select([self._replies], [], [], timeout)[0]:
            raise TimeoutError
        return json.loads(self._replies.readline())


def _serve():
    """Fork a process for each request; return, in that process, the request."""

    def reply(value):
        os.write(1, json.dumps(value).encode() + b"\n")

    import forking
    import gymnasium  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import torch._dynamo  # noqa: F401  # As the first step of an optimizer does.
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()  # As the first call of a compiled function does.
    cpu_target.target_context.refresh()

    forking.make_forks_cheap()
    reply("ready")
    with open(0, "rb", buffering=0, closefd=False) as requests:
        while line := requests.readline():
            pid = os.fork()
            if pid == 0:
                os.setsid()
                return json.loads(line)
            reply(pid)
            _, status = os.waitpid(pid, 0)
            reply(os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(request):
    """Make this process look like one that has just been started for the request."""
    for fd, path in enumerate([os.devnull, *request["outputs"]]):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, fd)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv = request["args"]
    sys.path[0] = os.path.dirname(sys.argv[0])


def _run():
    """Run the script, and end as Python does, but that the modules are not taken apart: that takes longer than some scripts."""
    code = 0
    try:
        ended = runpy.run_path(sys.argv[0], run_name="__main__")  # noqa: F841  # Kept, since functions that run at exit need it.
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    threading._shutdown()  # Waits for threads.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    _become(_serve())
    _run()
