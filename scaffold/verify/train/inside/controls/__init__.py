"""Deliberate mistakes, one a module, each of which a run has to notice."""
