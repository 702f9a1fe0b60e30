"""Robots of the tests, as MJCF: a cart-pole on a rail, and a box with four legs of two joints."""

CARTPOLE = """<mujoco model="cartpole"><compiler angle="radian"/><worldbody><body name="rail">
  <geom type="box" size="2 0.01 0.01" mass="1"/>
  <body name="cart"><joint name="slider" type="slide" axis="1 0 0"/><geom type="box" size="0.2 0.1 0.1" mass="1"/>
    <body name="pole"><joint name="hinge" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.02" mass="0.5"/></body></body></body></worldbody></mujoco>"""

LEG = """<body name="{0}_thigh" pos="{1} {2} 0"><joint name="{0}_hip" axis="0 1 0" range="-1 1"/>
  <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.5"/>
  <body name="{0}_calf" pos="0 0 -0.2"><joint name="{0}_knee" axis="0 1 0" range="-2 2"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.18" size="0.015" mass="0.3"/>
    <body name="{0}_foot" pos="0 0 -0.2"><geom type="sphere" size="0.02" mass="0.1"/></body></body></body>"""
LEGS = {"FL": (0.2, 0.1), "FR": (0.2, -0.1), "RL": (-0.2, 0.1), "RR": (-0.2, -0.1)}
MASS = 4.0 + 4 * (0.5 + 0.3 + 0.1)
LEGGED = (
    '<mujoco model="legged"><compiler angle="radian"/><worldbody><body name="base"><freejoint/>'
    '<geom type="box" size="0.25 0.1 0.05" mass="4"/>'
    + "".join(LEG.format(name, *place) for name, place in LEGS.items())
    + "</body></worldbody></mujoco>"
)
STANDING = 0.42  # m, height of the base


def write(folder):
    """Write both; return their files by the names under which a config spawns them."""
    files = {}
    for name, text in (("cartpole", CARTPOLE), ("legged", LEGGED)):
        (folder / f"{name}.xml").write_text(text)
        files[f"{name}.usd"] = str(folder / f"{name}.xml")
    return files
