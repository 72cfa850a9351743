"""The paper's experiments: every figure and claim, computed, drawn and judged (`make reproduce`)."""
