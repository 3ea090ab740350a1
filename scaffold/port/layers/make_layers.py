"""``make_layers``: all layers of a model, where a pipeline of devices would have some of them."""

from __future__ import annotations

from scaffold.port.layer import Arguments, Built, Site, UnsupportedError

NAMES = ("make_layers",)


def build(arguments: Arguments, site: Site) -> Built:
    """Return the list between its first and last index.

    Raises:
        UnsupportedError: it is called with something else than a count, a function and a prefix.
    """
    if len(arguments.positional) != 2 or arguments.keywords:
        raise UnsupportedError("make_layers with other arguments")
    given = ", ".join(arguments.positional)
    return Built(((None, f"{site.support('layer_list', 'all_layers')}({given})"),))
