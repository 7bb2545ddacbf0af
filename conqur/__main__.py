"""The program `conqur`, and `python -m conqur`: nothing is imported before Ctrl-C is minded."""

import sys


def main() -> None:
    """Run the command line of this process and exit."""
    try:
        from conqur import cli

        cli.main()
    except KeyboardInterrupt:
        print("conqur: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
