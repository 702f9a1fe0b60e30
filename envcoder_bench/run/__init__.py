"""A run as a library: config, preparation, memory plan, waves of training, its folder and results."""
