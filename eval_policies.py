"""The command eval-policies from a checkout: python eval_policies.py --help"""

import sys

from envcoder_bench.cli.eval_policies import main

if __name__ == "__main__":
    sys.exit(main())
