"""`conqur demo`: delusional bias, and what removes it, where everything is known exactly."""
