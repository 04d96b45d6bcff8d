"""Neural network components, and complete models for agents in `pg` and `dqn`."""
