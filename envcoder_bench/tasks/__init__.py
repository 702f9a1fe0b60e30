"""Robot tasks: model, state, goals and fitness. All shaping is candidates; see tasks/registry.py."""
