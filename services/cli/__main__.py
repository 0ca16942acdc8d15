"""python -m services.cli; also the script `turnout`."""

import sys

from services.cli.app import run


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
