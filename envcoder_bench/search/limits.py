"""What a resumed search may change: its limits, also if they have ended it, and the model."""

import os
from collections.abc import Mapping
from typing import Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.settings import Settings, merged
from envcoder_bench.core.yaml_files import to_yaml
from envcoder_bench.search.folder import Round, SearchFolder
from envcoder_bench.search.providers.choice import ANTHROPIC, REPLAY, WITHOUT_MODEL, kind_of
from envcoder_bench.search.providers.secrets import login_of, without_login
from envcoder_bench.search.settings import check_settings, with_defaults

LIMITS = ("max_tokens", "max_cost", "num_iters")  # settings that a resumed search may raise
MODEL = (
    "llm",
    "base_url",
    "temperature",
    "max_output_tokens",
    "reply_timeout",
)  # arguments and settings that it may replace


def raise_limits(folder: SearchFolder, config: Settings, raised: Mapping[str, Any]) -> Settings:
    """Raise limits of a search in its config, write and return it, and continue a search that they have ended.

    The final evaluation of a search that had ended is kept in another folder, ``final_1``, ``final_2`` ...

    Args:
        config: the search's config.
        raised: new values of settings in LIMITS.

    Raises:
        UserError: a limit is not higher than before, or the search ended for another reason; nothing was changed.
    """
    old = with_defaults(config.search)
    for key, value in raised.items():
        if old[key] is not None and not value > old[key]:
            raise UserError(f"--{key} {value}: the search has {old[key]}, which can only be raised")
    settings = merged(old, raised)
    check_settings(settings)
    config = Settings({**config, "search": settings})
    rounds = [round for round in map(folder.read_round, range(1, old.num_iters + 1)) if round is not None]
    ended = next((round for round in rounds if round.stopped), None)
    if ended is not None and not any(f"--{key} " in ended.stopped for key in raised):
        raise UserError(f"the search ended because {ended.stopped}: raise that limit")
    write_atomic(folder.config, to_yaml(config))
    if folder.final.is_dir() and (ended is not None or "num_iters" in raised):
        count = len(list(folder.path.glob(f"{folder.final.name}_*")))
        folder.final.rename(folder.path / f"{folder.final.name}_{count + 1}")
    if ended is not None:
        _continue(folder, ended)
    return config


def change_model(config: Settings, changed: Mapping[str, Any]) -> Settings:
    """Return a search's config with another model, server or settings of requests; the replies so far are kept.

    Args:
        config: the search's config.
        changed: new values of MODEL.

    Raises:
        UserError: for an invalid value, or if the search or the new model uses no server; nothing was changed.
    """
    llm = changed.get("llm", config.llm)
    for name in (config.llm, llm):
        if kind_of(name) in (*WITHOUT_MODEL, REPLAY):
            flags = ", ".join(f"--{key}" for key in changed)
            raise UserError(f"{flags}: --llm {name} sends no requests, so the search cannot continue with it or with"
                            " another model: start a new one")  # fmt: skip
    settings = with_defaults(config.search)
    settings = merged(settings, {key: changed[key] for key in MODEL if key in changed and key in settings})
    check_settings(settings)
    address = kept_address(changed["base_url"]) if "base_url" in changed else {}
    return Settings({**config, "search": settings, "llm": llm, **address})


def kept_address(base_url: str | None) -> dict[str, Any]:
    """Return the entries of a search's config for a URL: without user name and password, and whether it had them."""
    url = base_url or ""
    return {"base_url": without_login(url) or None, "base_url_login": bool(login_of(url))}


def whole_address(config: Settings, base_url: str | None) -> str | None:
    """Return the URL of a resumed search with user name and password, which its config does not have.

    Args:
        config: the search's config.
        base_url: the URL on the command line; None if there is none.

    Raises:
        UserError: if they are neither in ``base_url`` nor in the SDK's environment variable.
    """
    kept = config.base_url
    if base_url is not None or not config.get("base_url_login", False):
        return kept if base_url is None else base_url
    variable = "ANTHROPIC_BASE_URL" if kind_of(config.llm) == ANTHROPIC else "OPENAI_BASE_URL"
    url = os.environ.get(variable, "").strip()
    if login_of(url) and without_login(url).rstrip("/") == kept.rstrip("/"):
        return url
    again = kept.replace("//", "//USER:PASSWORD@", 1)
    raise UserError(f"the user name and password of --base_url {kept} are not kept: give --base_url {again} with"
                    f" --resume, or set {variable} to it")  # fmt: skip


def _continue(folder: SearchFolder, ended: Round) -> None:
    """Let the search go on after its last round; a round without any candidate is proposed again."""
    if ended.ready or ended.failed:
        ended.stopped = ""
        folder.write_round(ended)
    else:
        (folder.round(ended.number) / "round.json").unlink()
