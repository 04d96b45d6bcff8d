"""Starting experiments: variants of configurations."""
