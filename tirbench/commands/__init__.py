"""Commands of the command line, a module each: what is asked, what is printed, the exit code."""
