"""Several runs to one comparison."""
