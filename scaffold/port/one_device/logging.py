"""Loggers: what is logged changes nothing that is computed."""

LOGGERS = ("init_logger",)
