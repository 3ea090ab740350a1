"""Stand-in for verl-omni, merged with every other ``verl_omni`` folder on the path."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
__contract__ = "kit"
