"""Follow README and tutorial word by word, in new environments and empty folders, with the wheels in dist/.

The commands, the files to save, and the outputs come from the pages. Blocks marked <!-- needs a ... --> are left
out. Outputs are compared without numbers, rankings by the first candidate, its mark, and whether it is surely the best.
Each Python follows all commands. One with portable: before it computes with the instructions that every x86-64
processor has, which round otherwise: its numbers are those of another processor. All output is in build/release/.

    python scripts/follow_pages.py python3.11 portable:python3.13
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TextIO

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/tutorial.md")
LOGS = ROOT / "build" / "release"
WIDTH = 72  # of a printed command
# of torch, MKL, oneDNN and the C library; Warp, which has no variable for it, is told when Python starts
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-AVX",
}
WARP_PORTABLE = """
try:
    import warp
    warp.config.cpu_compiler_flags = ""
except ImportError:
    pass
"""
_BLOCK = re.compile(r"(?P<before>(?:(?!```)[^\n]+\n)*)\n*```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
_RANKED = re.compile(r"^\d+ +(\S+) +(?!\(baseline\))([^!\n]*!?).* ok$", re.MULTILINE)
_BEST = re.compile(r"^(\S+) is (?:the best with a probability of 95 %|first(;))", re.MULTILINE)
_NUMBER = re.compile(r"[-+]?\d[\d.,]*(e-\d+)?")


class Step(NamedTuple):
    """A block of a page: a command to ``run``, a file to ``save``, or the ``output`` of the last command."""

    kind: str
    text: str
    file: str = ""


def steps(page: str) -> Iterator[Step]:
    """Yield what a page tells its reader to do, in order."""
    for block in _BLOCK.finditer(page):
        before, language, text = block.group("before", "language", "text")
        saved = re.search(r"[Ss]ave this as\s+`([^`]+)`:\s*$", before)
        if before.splitlines()[-1:] and before.splitlines()[-1].startswith("<!-- needs "):
            continue
        if language == "bash":
            yield from (Step("run", line) for line in re.sub(r"\\\n\s*", " ", text).splitlines() if line.strip())
        elif language == "text":
            yield Step("output", text)
        elif saved:
            yield Step("save", text, saved[1])


def verdicts(text: str) -> set[str]:
    """Return what an output says apart from its numbers.

    Of a ranking these are its first candidate with its mark, and the best if no other may be the best, too. Marks of
    others may change with the CPU model. Of other outputs they are the lines.
    """
    joined = re.sub(r"\n {2}(?=\S)", " ", text)
    ranked = {f"{name}{'!' * row.endswith('!')}" for name, row in _RANKED.findall(joined)[:1]}
    if not ranked:
        lines = (" ".join(_NUMBER.sub("#", line).split()) for line in text.splitlines())
        return {line for line in lines if line.strip("-") and line != "..."}
    return ranked | {f"best: {'undecided' if others else first}" for first, others in _BEST.findall(joined)}


def variables(home: Path, portable: bool) -> dict[str, str]:
    """Return the variables of a shell in which the environment ``home`` is active."""
    shell = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    links = " ".join([str(ROOT / "dist"), *os.environ.get("PIP_FIND_LINKS", "").split()])
    shell |= {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "PIP_FIND_LINKS": links}
    if portable:
        start = home / "portable"
        start.mkdir()
        (start / "sitecustomize.py").write_text(WARP_PORTABLE, encoding="utf-8")
        caches = {"ENVCODER_BENCH_CACHE": str(start / "cache"), "WARP_CACHE_PATH": str(start / "warp")}
        shell |= PORTABLE | caches | {"PYTHONPATH": str(start)}
    return shell


def follow(page: str, work: Path, shell: dict[str, str], head: str, log: TextIO) -> bool:
    """Do the steps of a page in an empty folder, with the shell's variables; return whether all was as on the page."""
    same, todo = True, list(steps((ROOT / page).read_text(encoding="utf-8")))
    for step, after in zip(todo, [*todo[1:], None]):
        if step.kind == "save":
            (work / step.file).parent.mkdir(exist_ok=True)
            (work / step.file).write_text(step.text, encoding="utf-8")
        elif step.kind == "run":
            began = time.monotonic()
            done = subprocess.run(["bash", "-c", step.text], cwd=work, env=shell, capture_output=True, text=True)
            missing = verdicts(after.text) - verdicts(done.stdout) if after and after.kind == "output" else None
            state = "" if missing is None else f"NOT PRINTED: {sorted(missing)}" if missing else "as on the page"
            state = f"FAILED with {done.returncode}" if done.returncode else state
            print(f"\n$ {step.text}", done.stdout, done.stderr, state, sep="\n", file=log, flush=True)
            line = step.text if len(step.text) <= WIDTH else f"{step.text[: WIDTH - 4]} ..."
            print(f"{head}{time.monotonic() - began:5.0f} s  {line:{WIDTH}}  {state}".rstrip(), flush=True)
            same = same and not missing
            if done.returncode:
                print(done.stderr[-2000:], flush=True)
                return False
    return same


def follow_all(word: str) -> bool:
    """Follow the pages in a new environment of a Python; return whether all was as they say."""
    portable, python = word.startswith("portable:"), word.removeprefix("portable:")
    file, same, began = LOGS / f"{word.replace(':', '-').replace('/', '_')}.log", True, time.monotonic()
    with tempfile.TemporaryDirectory() as folder, file.open("w", encoding="utf-8") as log:
        home = Path(folder) / "environment"
        subprocess.run([python, "-m", "venv", home], check=True)
        shell = variables(home, portable)
        for page in PAGES:
            work = Path(folder) / Path(page).stem
            work.mkdir()
            same = follow(page, work, shell, f"{word}  {Path(page).name:11}  ", log) and same
    result = "all is as on the pages" if same else "NOT all is as on the pages"
    print(f"{word}  {result}, {(time.monotonic() - began) / 60:.0f} min: {file.relative_to(ROOT)}", flush=True)
    return same


def main(words: list[str]) -> int:
    pythons = words or [sys.executable]
    LOGS.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(pythons)) as pool:  # side by side
        return int(not all(list(pool.map(follow_all, pythons))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
