"""Where rendered packages appear: the ``verl_omni/pipelines`` folders of the path, seen as one."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
