"""How well a model shapes: the protocol, its runs, the score, and a site of scores."""
