"""One module a rule; see docs/check.md and docs/adding.md."""
