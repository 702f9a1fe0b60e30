"""Private parts of torch and MuJoCo Warp that this package uses or replaces, each in a file of its own.

The rules of such files are in ``mujoco_batches.compat``, beside the parts that both packages need.
"""
