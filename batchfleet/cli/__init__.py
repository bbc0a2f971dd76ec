"""The command line: `batchfleet`. Each command's module is imported when the command is run, not before."""
