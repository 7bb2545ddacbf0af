from tiny_runs import cartpole, conqur, minatar  # noqa: F401 (fixtures)
