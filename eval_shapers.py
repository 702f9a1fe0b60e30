"""The command eval-shapers from a checkout: python eval_shapers.py --help"""

import sys

from envcoder_bench.cli.eval_shapers import main

if __name__ == "__main__":
    sys.exit(main())
