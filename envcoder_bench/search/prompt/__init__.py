"""The prompts of a search: the task and its contract, the rules, and the feedback on earlier rounds."""
