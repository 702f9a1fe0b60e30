"""What every layer uses: groups, counter noise, errors, files, profiling. It imports nothing else of this package."""
