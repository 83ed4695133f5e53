"""Reading of settings: names, values, YAML. Other packages use rematch/core/config.py."""
