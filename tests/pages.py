"""Runs the Python blocks of a page of the documentation, in order, as one script: python tests/pages.py PAGE LOG_DIR

Runs that they start are tiny: no setting is larger than LIMITS says.
"""

import re
import runpy
import sys
import tempfile
from pathlib import Path

LIMITS = dict(n_steps=600, log_interval_steps=300)
LEARN_AFTER = 100  # environment steps

FENCE = re.compile(r"^(```+)(\w*)")


def script(text):
    """Return the Python blocks of a page, each line where it is in the page, so that tracebacks tell its number."""
    lines, fence, is_python = [], None, False
    for line in text.splitlines():
        match = FENCE.match(line)
        if match and (fence is None or line.rstrip() == fence):
            is_python = fence is None and match[2] == "python"
            fence = match[1] if fence is None else None
            line = ""
        lines.append(line if is_python else "")
    return "\n".join(lines) + "\n"


def limit_runs(log_dir):
    """Make all runs of this process tiny, and have them log under `log_dir`."""
    from rlpyt.algos.replay import ReplayAlgorithm
    from rlpyt.runners.minibatch_rl import MinibatchRlBase
    from rlpyt.utils.logging import context

    context.LOG_DIR = str(log_dir)
    make_runner, check_settings = MinibatchRlBase.__init__, ReplayAlgorithm.check_settings

    def make_small_runner(self, *args, **kwargs):
        kwargs.update({name: min(kwargs[name], limit) for name, limit in LIMITS.items() if name in kwargs})
        make_runner(self, *args, **kwargs)

    def check_small_settings(self):
        self.min_steps_learn = min(self.min_steps_learn, LEARN_AFTER)
        check_settings(self)

    MinibatchRlBase.__init__, ReplayAlgorithm.check_settings = make_small_runner, check_small_settings


if __name__ == "__main__":
    page, log_dir = sys.argv[1:]
    limit_runs(log_dir)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / f"{Path(page).stem}.py"
        file.write_text(script(Path(page).read_text()))
        sys.argv = [str(file)]
        runpy.run_path(str(file), run_name="__main__")
