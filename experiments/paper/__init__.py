"""The paper again: every figure and every claim, computed, drawn and judged by one command (`epf reproduce`)."""
