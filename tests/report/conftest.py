from tiny_runs import conqur  # noqa: F401 (a fixture)
