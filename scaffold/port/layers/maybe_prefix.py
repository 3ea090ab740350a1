"""``maybe_prefix``: the dotted name of a part of a module, which says nothing on one device but is handed on."""

from __future__ import annotations

from scaffold.port.layer import Arguments, Built, Site, UnsupportedError

NAMES = ("maybe_prefix",)


def build(arguments: Arguments, site: Site) -> Built:
    """Return the joined name.

    Raises:
        UnsupportedError: it is called with something else than a prefix and a name.
    """
    if len(arguments.positional) != 2 or arguments.keywords:
        raise UnsupportedError("maybe_prefix with other arguments")
    given = ", ".join(arguments.positional)
    return Built(((None, f"{site.support('joined_name', 'joined_name')}({given})"),))
