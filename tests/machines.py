"""Machines of several kinds, by what their system's files say: one text file each, in utils/launching/machines."""

from pathlib import Path

from rlpyt.utils.launching.machine import Machine, parse_cpu_list, read_machine

FOLDER = Path(__file__).parent / "utils" / "launching" / "machines"
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))


def lay_out(name: str, root: Path) -> dict[str, str]:
    """Write the files of machine `name` below `root`; return the other things its text says.

    A line is ``path = text``; several of one path are several lines of that file.
    """
    said: dict[str, str] = {}
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        key, equals, value = line.partition(" = ")
        if not equals or line.startswith("#"):
            continue
        if not key.startswith("/"):
            said[key] = value
            continue
        path = root / key[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"{value}\n")
    return said


def recorded(name: str, root: Path) -> Machine:
    """Return machine `name`, read from files written below `root`."""
    said = lay_out(name, root)
    env = {key: value for key, value in said.items() if key == "CUDA_VISIBLE_DEVICES"}
    return read_machine(root, cpus=parse_cpu_list(said["allowed"]), n_gpu=int(said["gpus"]), env=env)
