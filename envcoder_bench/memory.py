def check_memory(cfg, groups): pass
