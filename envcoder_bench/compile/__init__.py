"""From a candidate's function to a program of scalar operations, and from many programs to one kernel."""
