"""The rules found in a loader that map a checkpoint's keys to parameter names."""

from __future__ import annotations

from dataclasses import dataclass, field

from scaffold.inspect.facts import Evidence


@dataclass
class Rules:
    """Rules in the order found, each once, with its place."""

    renames: dict[tuple[str, str], Evidence | None] = field(default_factory=dict)
    stacked: dict[tuple[str, str, str | int], Evidence | None] = field(default_factory=dict)
    ignored: dict[str, Evidence | None] = field(default_factory=dict)
    skipped: dict[tuple[str, str], Evidence | None] = field(default_factory=dict)
    how: dict[tuple[str, str], str] = field(default_factory=dict)
    shards: dict[tuple[str, str], str | int] = field(default_factory=dict)
    loaders: list[Evidence] = field(default_factory=list)
    unread: bool = False
    handed: set[int] = field(default_factory=set)
    """Ids of arguments of calls that are not followed, such as a shard's name passed to a parameter's loader."""
    divided: bool = False
    """Whether one tensor fills several parts of a parameter, by code that no rule describes."""

    @property
    def none(self) -> bool:
        """Whether no rule was found."""
        return not (self.renames or self.stacked or self.ignored)

    def anchor(self, source: str, target: str, place: Evidence | None) -> None:
        """Add the rename of a prefix."""
        self.rename(source, target, place, "prefix")

    def rename(self, source: str, target: str, place: Evidence | None, how: str = "contains") -> None:
        """Add a rename; ``how`` says where in a key the text is looked for."""
        if source != target:
            self.renames.setdefault((source, target), place)
            self.how.setdefault((source, target), how)

    def settle(self) -> None:
        """Move what several texts are replaced by to the packed parameters, where the parts are known."""
        parts: dict[str, list[str]] = {}
        places: dict[str, set[str]] = {}
        for (source, target), how in self.how.items():
            places.setdefault(source, set()).add(target)
            if how == "contains" and target:
                parts.setdefault(target, []).append(source)
        for target, sources in parts.items():
            if len(sources) < 2:
                continue
            shards = [self.shards.get((source, target)) for source in sources]
            if None in shards or len(set(shards)) < len(shards):
                self.unread = True
                continue
            for source, shard in zip(sources, shards, strict=True):
                if shard is not None:
                    self.stacked.setdefault((target, source, shard), self.renames.pop((source, target)))
        # A name that becomes several is split by code that no rule describes.
        self.unread = self.unread or any(len(targets) > 1 for targets in places.values())
