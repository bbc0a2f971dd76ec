"""The whole fleet on one machine: every part started, watched and stopped by one supervisor.

`up` runs it in the foreground, `demo` and `bench` run `up` as a child and put work through it. Nothing imports
this package except the command line.
"""
