"""Makes forks of this process cheap: importable as ``forking`` here.

A fork copies the tables of all pages of memory that a process has for itself, and its end takes them apart again. With the hundreds of
MB that torch, numba and the tests fill, that takes 20 milliseconds at first, and 50 after some thousand tests. Huge pages, each in the
place of 512, halve it.
"""

import ctypes
import gc
import re
import resource
import sys

_HUGE = 2 << 20  # bytes of a huge page
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25  # of Linux
_GROWTH = 48 << 10  # KiB by which the process grows until all is done anew
_done_at = 0  # Most KiB that the process has had in memory when it was done last.


def make_forks_cheap():
    """Leave all present objects out of future garbage collections, which would copy them, and have them in huge pages."""
    global _done_at
    gc.collect()
    gc.freeze()
    if sys.platform == "linux":
        _use_huge_pages()
    _done_at = _most_memory()


def _use_huge_pages():
    madvise = ctypes.CDLL(None).madvise
    with open("/proc/self/maps") as maps:
        private = re.findall(r"^(\w+)-(\w+) rw-p 00000000 00:00 0 *(?:\[heap\])?$", maps.read(), re.MULTILINE)
    for start, end in private:
        start, end = -(-int(start, 16) // _HUGE) * _HUGE, int(end, 16) // _HUGE * _HUGE
        if start < end:  # Where the kernel has no huge pages, nothing changes.
            for advice in (_MADV_HUGEPAGE, _MADV_COLLAPSE):
                madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), advice)


def make_forks_cheap_again():
    """Do so if the process has grown since."""
    if _most_memory() > _done_at + _GROWTH:
        make_forks_cheap()


def _most_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB
