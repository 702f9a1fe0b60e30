"""Code that every layer uses: groups, counter noise, errors, files, profiling. It imports no other layer."""
