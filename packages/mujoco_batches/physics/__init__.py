"""Batches of MuJoCo's and MuJoCo Warp's simulations: what the engines, and other simulators of robots, are made of."""
