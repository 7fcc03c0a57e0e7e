"""YAML with line numbers, and without the traps: keys that stand twice, aliases without end, halves of characters."""

from __future__ import annotations

from typing import Any, NoReturn

import yaml

from proctor.rows import UserError

Key = tuple[str | int, ...]

_MOST_NODES = 1_000_000
"""Values and keys of a file, each alias counted anew: a few lines of YAML can spell out billions."""


class Lines:
    """Where each key of a YAML file stands, or which override set it."""

    def __init__(self, name: str, numbers: dict[Key, int]) -> None:
        self._name, self._numbers = name, numbers
        self._overrides: dict[Key, str] = {}

    def override(self, text: str) -> None:
        """Notes that the override `text` (``key.path=value``) has set its key, and all below it."""
        path = text.partition("=")[0].split(".")
        self._overrides[tuple(int(step) if step.isdigit() else step for step in path)] = text

    def below(self, key: Key) -> Lines:
        """The lines of what stands below `key`, as if it were a file of its own."""
        inner = Lines(self._name, {k[len(key) :]: line for k, line in self._numbers.items() if k[: len(key)] == key})
        inner._overrides = {k[len(key) :]: text for k, text in self._overrides.items() if k[: len(key)] == key}
        return inner

    def where(self, key: Key) -> str:
        """``file:line`` of `key`, or of its closest parent that the file has; ``--set ...`` if that has set it."""
        for length in range(len(key), 0, -1):
            if key[:length] in self._overrides:
                return f"--set {self._overrides[key[:length]]}"
        while key and key not in self._numbers:
            key = key[:-1]
        return f"{self._name}:{self._numbers[key]}" if key else self._name


def parse_yaml(text: str, name: str) -> tuple[dict[str, Any], Lines]:
    """Plain data of a YAML mapping and the lines of its keys; `name` stands for the file in messages.

    Raises:
        UserError: see `parse_value`; or not a mapping.
    """
    data, lines = parse_value(text, name)
    if not isinstance(data, dict):
        raise UserError("a spec is a mapping of keys, and this is not", where=name, fix="see `proctor run --help`")
    return data, lines


def parse_value(text: str, name: str) -> tuple[Any, Lines]:
    """Plain data of any YAML value and the lines of its keys.

    Raises:
        UserError: not YAML, a key stands twice, or what it spells out is endless.
    """
    survey = _Survey(name)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            survey.visit(root, ())
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise UserError(f"not YAML: {problem}", where=where) from error
    except RecursionError:
        raise UserError("nested too deeply, or an alias that holds itself", where=name) from None
    except ValueError as error:  # the time stamp or the number of more digits than there can be
        raise UserError(f"not YAML: {error}", where=name) from error
    return data, Lines(name, survey.numbers)


class _Survey:
    """Walks a file's nodes: notes the lines of its keys and refuses what could only be a trap."""

    def __init__(self, name: str) -> None:
        self.numbers: dict[Key, int] = {}
        self._name, self._count = name, 0

    def visit(self, node: yaml.Node, key: Key) -> None:
        self._count += 1
        if self._count > _MOST_NODES:
            raise UserError(f"more than {_MOST_NODES:,} values", where=self._name)
        if isinstance(node, yaml.MappingNode):
            self._visit_mapping(node, key)
        elif isinstance(node, yaml.SequenceNode):
            for position, item in enumerate(node.value):
                self.numbers[(*key, position)] = item.start_mark.line + 1
                self.visit(item, (*key, position))
        else:
            self._check_text(node)

    def _visit_mapping(self, node: yaml.MappingNode, key: Key) -> None:
        seen = set()
        for key_node, value_node in node.value:
            self._check_text(key_node)
            name = str(key_node.value)
            if name in seen:
                self._refuse(f"the key {name!r} stands twice", key_node)
            seen.add(name)
            self.numbers[(*key, name)] = key_node.start_mark.line + 1
            self.visit(value_node, (*key, name))

    def _check_text(self, node: yaml.Node) -> None:
        try:
            str(node.value).encode()
        except UnicodeEncodeError:
            self._refuse("holds half of a character (a lone surrogate)", node)

    def _refuse(self, what: str, node: yaml.Node) -> NoReturn:
        raise UserError(what, where=f"{self._name}:{node.start_mark.line + 1}")
