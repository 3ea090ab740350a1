"""What ``verify`` shows: a table on the terminal, one HTML page for reviewers, a section for a pull request."""
