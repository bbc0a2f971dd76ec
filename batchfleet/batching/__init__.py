"""Stage 4, what runs together: items, their window, and the decision which of them share a pass.

Everything here is pure: time is an argument, nothing does I/O, and nothing knows a runtime.
"""
