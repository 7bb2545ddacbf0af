"""Training loops: acting and learning, for many members at once.

A *member* is one network with its own seed, penalty weight λ, environments and replay; all members
of a run take the same steps together. In each step of all environments the members

    act     ε-greedily with θ,
    learn   on what is in the replay, in every `update_every`-th step,
    absorb  what the environments answered.

Learning does not wait for the answer, so that the accelerator learns while the host's emulators
run. Random numbers come from counters: a step's are the same whether or not the run was
interrupted before it.
"""

from conqur.training.compiled import CompiledTrainer
from conqur.training.fixed import DataTrainer
from conqur.training.hosted import HostTrainer
from conqur.training.trainer import Member, Trainer

__all__ = ["CompiledTrainer", "DataTrainer", "HostTrainer", "Member", "Trainer"]
