"""One function a section of the spec, ``fill_NAME``, in a module with those that are about the same."""
