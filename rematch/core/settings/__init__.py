"""How settings are read: their names, their values, YAML; rematch/core/config.py is the front."""
