"""A checkpoint compared by loading it: the package's own loader runs on headers, and it is seen what it fills."""

from scaffold.verify.loading.proof import Finding, LoadingProof
from scaffold.verify.loading.run import load_headers

__all__ = ["Finding", "LoadingProof", "load_headers"]
