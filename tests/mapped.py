"""Which files a process has mapped into its memory: importable as ``mapped`` here and in spawned processes."""

from pathlib import Path


def torch_files(pid="self"):
    """Files of torch in /dev/shm that process `pid` has mapped, whether or not they still have a name there."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[5] for line in maps if "/dev/shm/torch" in line}


def unnamed_memory(pid="self"):
    """Bytes of memory without a name, of the project's allocator, that process `pid` has mapped."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    ranges = (line.split()[0].split("-") for line in maps if "memfd:rlpyt" in line)
    return sum(int(end, 16) - int(start, 16) for start, end in ranges)
