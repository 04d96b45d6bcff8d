"""What a run tells: text, tables, parameters, snapshots. `logger` is the interface, `context` opens a run."""
