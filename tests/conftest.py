"""Tests keep traced programs in a folder of their own."""

import atexit
import os
import shutil
import tempfile

folder = tempfile.mkdtemp(prefix="envcoder_bench_tests_")
atexit.register(shutil.rmtree, folder, ignore_errors=True)
os.environ["ENVCODER_BENCH_CACHE"] = folder
