"""Workers: processes that train the jobs of a run on devices of this machine or of a Ray cluster."""
