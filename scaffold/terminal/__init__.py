"""What a person sees: the console, safe text, progress, and what an interruption prints."""
