"""Counting on many machines, and joining what they counted."""
