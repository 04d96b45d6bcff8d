"""Another path to `rlpyt.runners.snapshots`."""

from rlpyt.runners.snapshots import NotAFileError, SnapshotConfig, Snapshotter, find_snapshot  # noqa: F401
