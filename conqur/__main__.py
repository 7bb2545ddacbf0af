"""The program `conqur`, and `python -m conqur`: nothing is imported before Ctrl-C is minded."""

from conqur import _interrupt


def main() -> None:
    """Run the command line of this process and exit."""
    _interrupt.heed(_interrupt.at_once)
    from conqur import cli

    _interrupt.heed(_interrupt.by_exception)
    cli.main()


if __name__ == "__main__":
    main()
