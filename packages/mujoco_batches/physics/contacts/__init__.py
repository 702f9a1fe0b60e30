"""Contacts with height fields on MuJoCo Warp, from the surface itself; ``compat`` has those of MuJoCo on the CPU."""
