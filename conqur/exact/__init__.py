"""Exact answers for linear policy classes."""

from conqur.exact.depth_first import Search, search, tree_size, tree_size_bound
from conqur.exact.fit import Feasibility, Fit, fit_consistent, fit_penalised, project
from conqur.exact.head import consistent_head
from conqur.exact.linear import LinearPolicies, consistent
from conqur.exact.policy_consistent import PolicyConsistent, pcql, pcvi
from conqur.exact.verdict import Consistency, Verdict

__all__ = [
    "Consistency",
    "Feasibility",
    "Fit",
    "LinearPolicies",
    "PolicyConsistent",
    "Search",
    "Verdict",
    "consistent",
    "consistent_head",
    "fit_consistent",
    "fit_penalised",
    "pcql",
    "pcvi",
    "project",
    "search",
    "tree_size",
    "tree_size_bound",
]
