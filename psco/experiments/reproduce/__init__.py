"""The tables and figures of the paper, reproduced by a queue of runs that any command continues."""
