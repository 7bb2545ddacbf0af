"""The runtime type checker of the tests: beartype, with whole numbers accepted as floats."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
