from tiny_runs import _compile_once, cartpole, conqur, minatar  # noqa: F401 (fixtures)
