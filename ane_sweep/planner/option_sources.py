"""Hydra's sources of options: folders, whose files are checked before they are built, and options that have no file."""

import copy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import OmegaConf
from omegaconf._utils import get_yaml_loader

from ane_sweep.bridge.rewrites import plain_values
from ane_sweep.planner import derive, option_files, options, served, unread

_HEADER = 512  # characters in which Hydra looks for one
_LOADER = get_yaml_loader()  # OmegaConf's, for which 1e-5 is a number


class OptionFiles(FileConfigSource):
    """Hydra's reader of folders, which checks each file before building it. It ignores a config.yaml in a user's folder."""

    def is_config(self, config_path: str) -> bool:
        mine = self.provider != "command-line" or "/" in config_path
        return mine and (
            super().is_config(config_path) if _group(config_path) is None else bool(self._file(config_path))
        )

    def is_group(self, config_path: str) -> bool:
        """Return True for a folder of options; other folders, as that of outputs, may have the name of a key."""
        return (not config_path or config_path.split("/")[0] in unread.GROUPS) and super().is_group(config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        group, name = _group(config_path), _name(config_path)
        path = (group and self._file(config_path)) or Path(self.path, self._normalize_file_name(config_path)).resolve()
        if not path.exists():
            return super().load_config(config_path)  # which raises
        text = option_files.check(path)
        if group is not None and name in options.rows(path):
            return _result(self, derive.complete(group, name, options.row(path, name, _LOADER)))
        plain = copy.deepcopy(_parse(text))
        if group is not None:
            plain = derive.complete(group, name, plain)
        elif name == "config":  # a rewrite is one file, and brings its default
            plain = {**plain_values(), **plain}
        return replace(_result(self, plain), header=self._get_header_dict(text[:_HEADER]))

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        listed = super().list(config_path, results_filter)
        if config_path.split("/")[0] not in options.GROUPS or results_filter == ObjectType.GROUP:
            return listed
        return sorted({*listed, *options.names_in(Path(self.path, config_path))})

    def _file(self, config_path: str) -> Path | None:
        return options.file_of(Path(self.path, config_path).parent, _name(config_path))


@lru_cache(maxsize=256)
def _parse(text: str) -> dict[str, object]:
    """Return a checked file's values."""
    return yaml.load(text, Loader=_LOADER) or {}


def _name(config_path: str) -> str:
    return config_path.rpartition("/")[2].removesuffix(".yaml")


def _group(config_path: str) -> str | None:
    """Return the group of an option that may be computed or be a row of a file; None for others (sweeps, config.yaml)."""
    group, slash, _ = config_path.partition("/")
    return group if slash and group in options.GROUPS else None


def _result(source: ConfigSource, option: dict[str, object]) -> ConfigResult:
    return ConfigResult(source.provider, source.full_path(), OmegaConf.create(option), {"package": None})


class Computed(ConfigSource):
    """Hydra's source of options without a file: a precision described by its name, or a model with a checkpoint's config.json."""

    @staticmethod
    def scheme() -> str:
        return "computed"

    def load_config(self, config_path: str) -> ConfigResult:
        group, _, name = config_path.partition("/")
        return _result(self, served.option(name) if group == "model" else options.palette(name) or {})

    def is_config(self, config_path: str) -> bool:
        group, _, name = config_path.partition("/")
        return served.is_checkpoint(name) if group == "model" else group == "precision" and name in options.PALETTES

    def is_group(self, config_path: str) -> bool:
        return config_path == "precision"

    def available(self) -> bool:
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        return [] if results_filter == ObjectType.GROUP or config_path != "precision" else [*options.PALETTES]
