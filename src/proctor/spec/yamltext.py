"""YAML with line numbers, and without the traps: a key that stands twice is refused."""

from __future__ import annotations

from typing import Any

import yaml

from proctor.rows import UserError

Key = tuple[str | int, ...]


class Lines:
    """Where each key of a YAML file stands."""

    def __init__(self, name: str, numbers: dict[Key, int]) -> None:
        self._name, self._numbers = name, numbers

    def where(self, key: Key) -> str:
        """``file:line`` of `key`, or of its closest parent that the file has."""
        while key and key not in self._numbers:
            key = key[:-1]
        return f"{self._name}:{self._numbers[key]}" if key else self._name


def parse_yaml(text: str, name: str) -> tuple[dict[str, Any], Lines]:
    """Plain data of a YAML mapping and the lines of its keys; `name` stands for the file in messages.

    Raises:
        UserError: not YAML, not a mapping, or a key stands twice.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        raise UserError(f"not YAML: {getattr(error, 'problem', None) or error}", where=where) from error
    if root is None or not isinstance(data, dict):
        raise UserError("a spec is a mapping of keys, and this is not", where=name, fix="see `proctor run --help`")
    numbers: dict[Key, int] = {}
    _collect(root, (), numbers, name)
    return data, Lines(name, numbers)


def _collect(node: yaml.Node, key: Key, numbers: dict[Key, int], name: str) -> None:
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.value in seen:
                raise UserError(f"the key {key_node.value!r} stands twice", where=f"{name}:{line}")
            seen.add(key_node.value)
            child = (*key, key_node.value)
            numbers[child] = line
            _collect(value_node, child, numbers, name)
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            numbers[(*key, position)] = item.start_mark.line + 1
            _collect(item, (*key, position), numbers, name)
