"""Results: a table made of runs, and what it says in Markdown."""
