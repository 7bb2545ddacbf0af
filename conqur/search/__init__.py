"""ConQUR's search over Q-regressors (Sec. 3.3 to 3.5, Algorithm 2)."""
