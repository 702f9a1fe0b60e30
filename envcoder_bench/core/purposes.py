"""The purposes of random numbers, for modules that do not import torch; ``core.noise`` draws the numbers."""

import enum

PURPOSES = 64  # two different purposes, from 0 to 63, never share random numbers


@enum.unique
class Purpose(enum.IntEnum):
    """The purpose of random numbers.

    A new purpose takes the next number. A purpose's number never changes, because the random numbers of all runs would
    change with it. Numbers from 48 on are left to other packages.
    """

    ACTION = 0  # exploration
    INITIAL_STATE = 1
    GOAL = 2
    REWARD = 3
    OBSERVATION = 4
    TERMINAL = 5
    COMMAND = 6  # also draws while functions are loaded and checked
    ISAAC_GYM_DRAW = 7
    FITNESS = 8
    ISAAC_GYM_RANDOMIZATION = 9
    TERRAIN_LEVEL = 10
    FIRST_PROGRESS = 11  # the first episodes begin in the middle
    CRITIC_OBSERVATION = 12
    TERM_DRAW = 13
    REPLAY_SAMPLE = 14
    POLICY_SAMPLE = 15  # of a policy's actions while it learns off-policy
    STRESS = 16  # pushes, and the errors of sensors


STRIDE = 16  # distance of the counters of two steps


def counter_offset(purpose: int) -> int:
    """Return what a purpose adds to ``STRIDE`` times the step, an int64.

    The first 16 purposes fit between two steps; the others are in the two highest bits, beyond steps of up to 2**58.
    """
    return purpose % STRIDE + ((purpose // STRIDE << 62) ^ (1 << 63)) - (1 << 63)


def signed(x: int) -> int:
    """Return the int64 with the last 64 bits of an integer."""
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)
