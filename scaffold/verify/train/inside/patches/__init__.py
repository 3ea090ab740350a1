"""One module for each thing that a CPU lacks.

``PLACES`` names what each works around, as ``file:definition`` or ``file`` alone, with the digest of that code in the
releases for which it was written; ``HOOKS`` says after which import it acts, ``prepare`` acts at once. Nothing here
knows a model.
"""
