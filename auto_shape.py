"""The command auto-shape from a checkout: python auto_shape.py --help"""

import sys

from envcoder_bench.cli.auto_shape import main

if __name__ == "__main__":
    sys.exit(main())
