"""Build what PyPI gets: the sdists and wheels of all distributions, from the last commit. It uploads nothing.

CITATION.cff has the repository's address, under repository-code: for the metadata and for the absolute
links that PyPI needs in the READMEs, whose links are relative. Without an address, links become plain text.
"""

import io
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
FOLDERS = (
    "packages/mujoco_batches",
    "packages/isaacgym_mujoco",
    "packages/isaaclab_mujoco",
    ".",
)  # in the order in which they are uploaded
OF_PROJECT = {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"}  # of a package's folder, not of the package
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)\s]+)\)")


def repository() -> str:
    """Return the repository's address, without a slash at its end; empty if CITATION.cff has none."""
    found = re.search(r"^repository-code: *[\"']?(\S+?)/?[\"']?$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    return found[1] if found else ""


def absolute_links(text: str, folder: str, address: str) -> str:
    """Return a README of a folder of the repository with absolute links; without an address, with their text alone."""

    def absolute(link: re.Match[str]) -> str:
        picture, words, target = link.groups()
        if not address:
            return "" if picture else words
        path = "/".join(_parts(PurePosixPath(folder) / target)) if target[0] != "#" else target
        page = f"{address}/{'raw' if picture else 'blob'}/main/{path}" if target[0] != "#" else target
        return f"{picture}[{words}]({page})"

    return LINK.sub(absolute, text)


def _parts(path: PurePosixPath) -> list[str]:
    """Return the parts of a path without ``.`` and ``..``."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return parts


def urls(address: str) -> str:
    """Return the table of addresses for a pyproject.toml; empty without an address."""
    pages = {"Repository": "", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md"}
    pages["Issues"] = "/issues"
    rows = "".join(f'{name} = "{address}{page}"\n' for name, page in pages.items())
    return f"\n[project.urls]\n{rows}" if address else ""


def export(folder: Path, address: str) -> None:
    """Write the files of the last commit into a folder, with the addresses in READMEs and pyproject.toml files."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    for name in FOLDERS:
        readme, project = folder / name / "README.md", folder / name / "pyproject.toml"
        readme.write_text(absolute_links(readme.read_text(encoding="utf-8"), name, address), encoding="utf-8")
        project.write_text(project.read_text(encoding="utf-8") + urls(address), encoding="utf-8")


def main() -> int:
    address = repository()
    with tempfile.TemporaryDirectory() as folder:
        export(Path(folder), address)
        for name in FOLDERS:  # the wheel from the sdist
            words = [sys.executable, "-m", "build", "--outdir", DIST, Path(folder) / name]
            built = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            print(f"{_distribution(name)}: {built.stdout if built.returncode else 'sdist and wheel'}", flush=True)
            if built.returncode:
                return built.returncode
    faults = [fault for name in FOLDERS for fault in wheel_faults(name, DIST)]
    if faults:
        print(*faults, sep="\n", file=sys.stderr)
        return 1
    files = [file for name in FOLDERS for file in built_files(name, DIST)]
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], stdout=subprocess.PIPE, text=True
    )
    if checked.returncode:
        print(checked.stdout)
        return checked.returncode
    print(
        "they pass twine check; in the order of their upload:",
        *(f"  {file.relative_to(ROOT)}" for file in files),
        sep="\n",
    )
    if not address:
        print(
            "CITATION.cff has no repository-code: the READMEs have no links. Add it before an upload.", file=sys.stderr
        )
    return 0


def built_files(folder: str, dist: Path) -> list[Path]:
    """Return the sdist and the wheel of a folder's present version; others may be beside them."""
    name = _distribution(folder)
    code = (ROOT / folder / (name if folder == "." else "") / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', code, re.MULTILINE)
    return [*dist.glob(f"{name}-{version}.tar.gz"), *dist.glob(f"{name}-{version}-*.whl")]


def wheel_faults(folder: str, dist: Path) -> list[str]:
    """Return the files of a package that its wheel lacks, and those that it has besides."""
    name, wheel = _distribution(folder), built_files(folder, dist)[-1]
    inside = {file for file in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in file}
    parts = (name, "cfg", "user_functions") if folder == "." else (".",)  # a package's folder is the package itself
    listed = subprocess.run(["git", "ls-files", *parts], cwd=ROOT / folder, check=True, capture_output=True, text=True)
    files = {file for file in listed.stdout.split("\n") if file and not file.startswith("tests/")}
    if folder != ".":
        files -= OF_PROJECT
    own = {file if file.startswith(f"{name}/") else f"{name}/{file}" for file in files}
    lacking, more = sorted(own - inside), sorted(inside - own)
    return [f"{wheel.name} lacks {file}" for file in lacking] + [f"{wheel.name} has {file}" for file in more]


def _distribution(folder: str) -> str:
    """Return the name of a folder's distribution, as its files have it."""
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["name"].replace("-", "_")


if __name__ == "__main__":
    sys.exit(main())
