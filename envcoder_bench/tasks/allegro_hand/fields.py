"""What AllegroHand's ``state_dict`` holds."""

from __future__ import annotations

from envcoder_bench.tasks.base import Field

FINGERS = ("index", "middle", "ring", "thumb")
RAD, RAD_S = "rad", "rad/s"
JOINTS = "joint angles; fingers index, middle, ring, thumb, each from palm to tip"
FIELDS = {
    "shadow_hand_dof_pos": Field((16,), RAD, JOINTS),
    "shadow_hand_dof_vel": Field((16,), RAD_S, "joint velocities"),
    "dof_pos": Field((16,), RAD, "the same as shadow_hand_dof_pos"),
    "dof_vel": Field((16,), RAD_S, "the same as shadow_hand_dof_vel"),
    "dof_force_tensor": Field((16,), "N m", "torques that the drives applied in the last physics step"),
    "cur_targets": Field(
        (16,), RAD, "position targets of the last step, and of the next one's past; joint angles under torques"
    ),
    "prev_targets": Field((16,), RAD, "the same as cur_targets"),
    "fingertip_state": Field(
        (4, 13),
        "m, -, m/s, rad/s",
        "fingertips index, middle, ring, thumb: position 3, quaternion xyzw 4, linear velocity 3, angular velocity 3; "
        "world frame",
    ),
    "fingertip_pos": Field((4, 3), "m", "their positions"),
    "contact_forces": Field(
        (18, 3), "N", "net contact force on each body in the last physics step, the object last; world frame"
    ),
    "object_state": Field(
        (13,),
        "m, -, m/s, rad/s",
        "the cube: position 3, quaternion xyzw 4, linear velocity 3, angular velocity 3; world frame",
    ),
    "object_pose": Field((7,), "m, -", "its position and quaternion"),
    "object_pos": Field((3,), "m", "its position"),
    "object_rot": Field((4,), "-", "its quaternion, xyzw"),
    "object_linvel": Field((3,), "m/s", "its linear velocity"),
    "object_angvel": Field((3,), RAD_S, "its angular velocity"),
    "object_init_state": Field((13,), "as object_state", "the cube at rest above the fingers, unturned"),
    "goal_pose": Field((7,), "m, -", "goal: position and quaternion together; renewed when it is reached"),
    "goal_pos": Field((3,), "m", "goal: where the cube is to be; 4 cm below its start unless compute_goal sets it"),
    "goal_rot": Field((4,), "-", "goal: how the cube is to be turned; quaternion xyzw"),
    "successes": Field((), "-", "goals reached since the episode began, the last step's included"),
    "consecutive_successes": Field(
        (), "-", "successes at the ends of this environment's episodes, averaged with av_factor for the newest"
    ),
    "actions": Field((16,), "-", "last action, clipped; as wide as the candidate's; 0 where an episode begins"),
    "progress_buf": Field((), "control steps", "steps since the episode began; int64"),
    "shadow_hand_dof_lower_limits": Field(None, RAD, "lower ends of the joints' ranges, (16,)"),
    "shadow_hand_dof_upper_limits": Field(None, RAD, "upper ends of the joints' ranges, (16,)"),
    "shadow_hand_dof_default_pos": Field(None, RAD, "joint angles of the flat hand: 0, (16,)"),
    "shadow_hand_dof_default_vel": Field(None, RAD_S, "0, (16,)"),
    "effort_limits": Field(None, "N m", "greatest torques of the drives, (16,)"),
    "palm_index": Field(None, "-", "the palm in contact_forces"),
    "fingertip_indices": Field(None, "-", "the 4 links that end in fingertips, in contact_forces"),
    "object_index": Field(None, "-", "the cube in contact_forces"),
    "object_size": Field(None, "m", "the cube's edge"),
    "max_episode_length": Field(None, "control steps", "an episode times out after so many"),
    "dt": Field(None, "s", "one control step"),
    "success_tolerance": Field(None, RAD, "a goal is reached where the cube is turned at most so far from it"),
    "fall_dist": Field(None, "m", "a cube this far from the goal's position has fallen"),
    "act_moving_average": Field(None, "-", "share of the new target in the human baseline's target"),
    "shadow_hand_dof_speed_scale": Field(None, "rad/s", "for actions that are velocities of the targets"),
    "dist_reward_scale": Field(None, "1/m", "of the human baseline's cost of distance"),
    "rot_reward_scale": Field(None, "rad", "of the human baseline's reward for alignment"),
    "rot_eps": Field(None, "rad", "bounds the human baseline's reward for alignment"),
    "action_penalty_scale": Field(None, "-", "of the human baseline's cost of actions"),
    "reach_goal_bonus": Field(None, "-", "the human baseline's reward for a goal reached"),
    "fall_penalty": Field(None, "-", "the human baseline's reward for a fall"),
    "reset_position_noise": Field(None, "m", "of the cube where episodes begin"),
    "reset_dof_pos_noise": Field(None, "-", "share of the joints' ranges in which they begin"),
    "reset_dof_vel_noise": Field(None, "rad/s", "of the joints where episodes begin"),
    "vel_obs_scale": Field(None, "s/rad", "observation scale of joint and angular velocities"),
    "force_torque_obs_scale": Field(None, "1/(N m)", "observation scale of joint torques"),
    "av_factor": Field(None, "-", "weight of the newest episode in consecutive_successes"),
}
