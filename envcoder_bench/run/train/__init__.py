"""Training of a run: a session trains a wave, an executor trains all waves, a race decides which groups go on."""
