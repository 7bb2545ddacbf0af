from tiny_runs import cartpole, conqur  # noqa: F401 (fixtures)
