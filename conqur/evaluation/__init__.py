"""Scores of policies: several at once, on the same starts, by the paper's protocol.

An episode is known by its number: the environment's seed and the random numbers of ε-greedy play
come from `seed` and that number alone. So episode i of one policy and episode i of another begin
alike (common random numbers; compare them with `statistics.paired_difference`), and neither the
other policies nor the number of copies of the environment change a policy's scores. (Up to
rounding: a network's last bits may differ between batch sizes, and turn a tie.)
"""

from conqur.evaluation.evaluating import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
