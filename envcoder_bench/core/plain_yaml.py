"""Config files of folders, which may come from other people."""

import yaml


def refuse_aliases(text: str) -> None:
    """Raise ValueError if a YAML text has aliases (``*name``): a few lines of them stand for billions of values.

    No file that this package writes has any.
    """
    if "*" not in text:
        return
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"line {event.start_mark.line + 1}: *{event.anchor} repeats another part of the file")
    except yaml.YAMLError:  # who reads it says where
        return
