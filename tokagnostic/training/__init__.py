"""Text to trained hosts, readers and memories."""
