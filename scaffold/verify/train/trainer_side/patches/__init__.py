"""What a run on a CPU, or of a release that verl-omni was not written for, needs: one small function for each thing.

``@after`` names the module after whose import it acts, and what it works around, as ``file:definition`` or ``file``
alone, with the digest of that code in the releases for which it was written, an empty one for a release that has no
such code; ``@at_start`` acts at once, ``@of_run`` looks at variables of the run first. A module holds what has one
cause. Nothing here knows a model.
"""
