"""One module for each thing that a CPU lacks, or a release that verl-omni was not written for.

``PLACES`` names what each works around, as ``file:definition`` or ``file`` alone, with the digest of that code in the
releases for which it was written, an empty one for a release that has no such code; ``HOOKS`` says after which import
it acts, ``prepare`` acts at once. Nothing here knows a model.
"""
