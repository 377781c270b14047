"""The same over a whole corpus as one document, larger than memory, by sorted runs on disk."""
