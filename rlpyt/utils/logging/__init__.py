"""The log of a run: text, tables, parameters, snapshots. `logger` is the interface, `context` opens a run."""
