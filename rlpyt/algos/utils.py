"""Another path to `rlpyt.returns`, which scripts use."""

from rlpyt.returns import (  # noqa: F401
    discount_return,
    discount_return_n_step,
    discount_return_tl,
    explained_variance,
    generalized_advantage_estimation,
    generalized_advantage_estimation_tl,
    v_trace,
    valid_from_done,
    valid_steps,
)
