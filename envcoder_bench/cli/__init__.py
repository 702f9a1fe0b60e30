"""The commands: parse, call, print, handle signals, return exit codes. Nothing below prints."""
