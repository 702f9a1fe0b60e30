"""The verbs of the command envcoder-bench. A verb is a module with ``main(words) -> exit code``.

A new verb: a module in this folder, a row in VERBS, and tests.
"""

# what the help of envcoder-bench says about each; modules are imported only when their verb is called
VERBS = {
    "check-task": "check that a task of your own fulfils the contract of tasks",
    "compare": "compare several runs of a task, paired by seed, as tables and a page",
    "completion": "print a script that completes commands, flags and files in bash, zsh or tcsh",
    "export": "write a trained policy as ONNX or TorchScript, with a description of its inputs and outputs",
    "list": "list the runs in a folder, with task, date, best candidate and status",
    "new-task": "write the folder of a task from the model of a robot, MJCF or URDF",
    "play": "replay trained policies side by side, as a video or in MuJoCo's viewer",
    "report": "write the page of a run again, report.html, with videos of its best policies",
}
